"""What made a build, beside its source: as CMake has it in the build folder."""
import re
from pathlib import Path

UNKNOWN = "unknown"


def made_with(folder: Path) -> dict[str, str]:
    """Compiler, its flags, and CMake's type of the build."""
    cache = _cache_of(folder)
    kind = cache.get("CMAKE_BUILD_TYPE", "")
    flags = " ".join(cache.get(name, "") for name in ("CMAKE_CXX_FLAGS", f"CMAKE_CXX_FLAGS_{kind.upper()}")).strip()
    return {"compiler": _compiler_of(folder), "flags": flags, "type": kind if cache else UNKNOWN}


def differences(base: Path, head: Path) -> list[str]:
    """Notes: what is not the source's doing. Nothing where a folder does not tell, as one of programs alone."""
    before, after = made_with(base), made_with(head)
    if UNKNOWN in (before["type"], after["type"]):
        return []
    told = [f"{name} {before[name] or 'none'} and {after[name] or 'none'}" for name in before if before[name] != after[name]]
    return [f"the builds differ in more than their source: {', '.join(told)}"] if told else []


def _cache_of(folder: Path) -> dict[str, str]:
    try:
        lines = (folder / "CMakeCache.txt").read_text().splitlines()
    except OSError:
        return {}
    return {name: value for name, _, value in (re.split(r"(:[A-Z]+=)", line, maxsplit=1) for line in lines if re.match(r"\w+:[A-Z]+=", line))}


def _compiler_of(folder: Path) -> str:
    for path in folder.glob("CMakeFiles/*/CMakeCXXCompiler.cmake"):
        text = path.read_text()
        found = [re.search(rf'set\({name} "([^"]*)"\)', text) for name in ("CMAKE_CXX_COMPILER_ID", "CMAKE_CXX_COMPILER_VERSION")]
        if all(found):
            return " ".join(match.group(1) for match in found)
    return UNKNOWN
