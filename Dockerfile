# Lockstep on CPUs and over MPI, with its report; docs/install.md says how to run it. The image for GPUs: Dockerfile.cuda.
FROM debian:12 AS build
WORKDIR /lockstep
COPY ci/install.sh ci/packages.txt ci/
# hadolint ignore=DL3008
RUN ci/install.sh build report \
 && apt-get install -y --no-install-recommends file python3-pip \
 && rm -rf /var/lib/apt/lists/*
COPY . .
RUN cmake --preset release \
 && cmake --build --preset release --target programs manuals \
 && cmake -E chdir build/release cpack -D CPACK_COMPONENTS_ALL=programs \
 && python3 -m pip install --no-cache-dir --no-deps --no-build-isolation --target /opt/lockstep-report ./reports

FROM debian:12-slim
COPY --from=build /lockstep/build/release/lockstep_*.deb /tmp/
COPY --from=build /opt/lockstep-report /opt/lockstep-report
# apt-get reads the package's own list of libraries, made by dpkg-shlibdeps.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends /tmp/lockstep_*.deb openmpi-bin openssh-client \
    python3-numpy python3-scipy python3-matplotlib python3-jinja2 python3-jsonschema \
 && rm -rf /var/lib/apt/lists/* /tmp/lockstep_*.deb \
 && useradd --create-home --uid 10001 lockstep
ENV PYTHONPATH=/opt/lockstep-report PATH=/opt/lockstep-report/bin:$PATH
USER 10001
WORKDIR /home/lockstep
CMD ["suite", "--suite", "quick", "--out", "records"]
