"""constants.py: what masks and tables of rotations mean, which the graph has as numbers."""
import math

import torch

from ops import needs
from refusal import Refused

HIDDEN = -1e4  # a score that is added counts as minus infinity from here on
OF_OTHER_VALUES = "scores with a constant bias, as ALiBi's; a mask of 0 and minus infinity, or of bool, is taken"
FREQUENCIES_DIFFER = 3e-7  # units in the last place of f32
TABLES_DIFFER = 2e-6


def window_of(mask, is_causal, sequence):
    """How many tokens a query sees, itself included; 0: all before it; None: all of the sequence."""
    if mask is None:
        return 0 if is_causal else None
    seen = sees(mask)
    needs(seen is not None, OF_OTHER_VALUES)
    needs(seen.shape[-2:] in ((sequence, sequence), (1, sequence)), "a mask of another shape than (sequence, sequence)")
    seen = seen.expand(*seen.shape[:-2], sequence, sequence).reshape(-1, sequence, sequence)
    needs(torch.equal(seen, seen[:1].expand_as(seen)), "a mask that differs between sequences or heads")
    seen = seen[0] & causal(sequence, sequence) if is_causal else seen[0]
    if bool(seen.all()):
        return None
    window = int(seen[-1].sum())
    needs(torch.equal(seen, causal(sequence, window)), "a mask that is neither causal nor a window")
    return 0 if window == sequence else window


def causal(sequence, window):
    return torch.ones(sequence, sequence, dtype=torch.bool).tril().triu(1 - window)


def is_mask_of_keys(mask, shown):
    """"seen", "hidden" or "": whether a mask that is broadcast to (batch, heads, sequence, sequence), or has batch and heads as one, is of these keys."""
    seen = sees(mask)
    if seen is None or seen.dim() not in (3, 4):
        return ""
    seen = seen.reshape(len(shown), -1, *seen.shape[1:]) if seen.dim() == 3 else seen
    keys = shown[:, None, None].expand(len(shown), *seen.shape[1:3], -1)
    if seen.shape[-1] != keys.shape[-1] or len(seen) not in (1, len(keys)):
        return ""
    seen = seen.expand(keys.shape)
    return "seen" if torch.equal(seen, keys) else "hidden" if torch.equal(seen, ~keys) else ""


def sees(mask):
    if mask.dtype == torch.bool:
        return mask
    seen = mask == 0
    return seen if bool((seen | (mask <= HIDDEN)).all()) else None


# ---- tables of rotations ----

def frequency_of(attributes, half):
    """In f64: what ROPE_TABLE of ops.def makes."""
    pair = torch.arange(half, dtype=torch.float64)
    frequency = attributes["theta"] ** (-pair / half)
    if attributes.get("factor", 0) > 0:
        kept = (attributes.get("slope", 0) * frequency - attributes.get("offset", 0) - attributes.get("step", 0) * pair).clamp(0, 1)
        frequency = frequency * (kept + (1 - kept) / attributes["factor"])
    return frequency


def fits(attributes, half, frequency, scale):
    wanted = frequency_of(attributes, half)
    return abs(attributes.get("scale", 1) - scale) < 1e-6 * scale and bool(((frequency - wanted).abs() <= FREQUENCIES_DIFFER * wanted).all())


def rope_table(cos, sin, half, scalings):
    """The attributes of ROPE_TABLE whose table has these rows for each position: (sequence, half or head_dim)."""
    if cos.shape[-1] == 2 * half:
        needs(torch.equal(cos[:, :half], cos[:, half:]) and torch.equal(sin[:, :half], sin[:, half:]), "rotations that are not of two halves")
    cos, sin = cos[:, :half].double(), sin[:, :half].double()
    needs(cos.shape[-1] == half and len(cos) > 1, "rotations of another part of a head than what turns")
    scale = float(cos[0].mean())
    frequency = torch.atan2(sin[1], cos[1])
    check_table(cos, sin, frequency, scale)
    for attributes in candidates(frequency, half, scalings):
        if fits(attributes, half, frequency, scale):
            return tuple({"half": half, **attributes}.items())
    raise Refused("rotary frequencies that are no powers of one number, nor scaled as config.json says")


def check_table(cos, sin, frequency, scale):
    """All positions have these frequencies. The angles of the module are f32: they differ the more, the larger they are."""
    angle = torch.arange(len(cos), dtype=torch.float64)[:, None] * frequency
    allowed = scale * (TABLES_DIFFER + 4e-7 * angle.abs())
    differs = (cos - scale * angle.cos()).abs().max(), (sin - scale * angle.sin()).abs().max()
    near = ((cos - scale * angle.cos()).abs() <= allowed) & ((sin - scale * angle.sin()).abs() <= allowed)
    needs(bool(near.all()) and math.isfinite(scale), f"rotations that are no multiples of those of position 1 (by {max(map(float, differs)):.2g})")


def candidates(frequency, half, scalings):
    """Settings of ROPE_TABLE: those of the configuration, then the shortest decimals near the theta of the last frequency."""
    yield from filter(None, (scaling(half) for scaling in scalings))
    if half == 1:
        yield {"theta": 10000.0}
        return
    if not bool((frequency > 0).all()):
        return
    theta = float(frequency[-1]) ** (-half / (half - 1))
    for digits in range(1, 10):
        yield {"theta": float(f"{theta:.{digits}g}")}
