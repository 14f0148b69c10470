"""Fixed colours of what a rank does, told apart by people who do not see all colours (Okabe and Ito 2008)."""
from matplotlib.colors import to_hex, to_rgb

TEXT = "#101214"  # on a box: dark on a dark page too

COMPUTE = {
    "F": ("#56b4e9", "forward"), "B": ("#009e73", "backward"), "I": ("#e69f00", "gradient of input"),
    "W": ("#cc79a7", "gradient of weights"), "RECOMPUTE": ("#f0e442", "recomputation"),
    "STEP": ("#7d7d7d", "optimizer"),
}
STRIPS = {
    "send": ("#3f3f3f", "sending"), "receive": ("#a0a0a0", "message coming in"),
    "tensor": ("#0072b2", "collective in a layer"), "gather": ("#7a4ea3", "gather of weights"),
    "reduce": ("#d55e00", "reduction of gradients"), "replicas": ("#f0a07c", "sum over replicas of shards"),
    "copy": ("#8b6a3e", "copy to or from host"),
}
OTHER = ("#b4bac2", "other")


def shade(colour: str, chunk: int, chunks: int) -> str:
    """The rank's first stage has the colour itself, the last the lightest."""
    if chunk == 0 or chunks < 2:
        return colour
    part = 0.55 * chunk / (chunks - 1)
    return to_hex([value + (1 - value) * part for value in to_rgb(colour)])
