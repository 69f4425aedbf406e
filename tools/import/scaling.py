"""scaling.py: rotary frequencies as config.json says them: attributes of ROPE_TABLE (kernels/ops.def)."""
import math


def default(said, half):
    return {}


def linear(said, half):
    return {"factor": said["factor"]}


def llama3(said, half):
    between = said["high_freq_factor"] - said["low_freq_factor"]
    return {"factor": said["factor"], "slope": said["original_max_position_embeddings"] / (2 * math.pi * between),
            "offset": said["low_freq_factor"] / between}


def yarn(said, half):
    """Pairs up to `first` keep their wavelengths, those from `last` on have all of the factor."""
    def pair_of(turns):
        return half * math.log(said["original_max_position_embeddings"] / (2 * math.pi * turns)) / math.log(said["rope_theta"])

    first, last = pair_of(said.get("beta_fast") or 32), pair_of(said.get("beta_slow") or 1)
    if said.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * half - 1)
    last += 0.001 if first == last else 0
    return {"factor": said["factor"], "offset": -last / (last - first), "step": 1 / (last - first), "scale": scale_of(said)}


def scale_of(said):
    def sharpness(weight):
        return 0.1 * weight * math.log(said["factor"]) + 1

    if said.get("attention_factor"):
        return said["attention_factor"]
    if said.get("mscale") and said.get("mscale_all_dim"):
        return sharpness(said["mscale"]) / sharpness(said["mscale_all_dim"])
    return sharpness(1)


KINDS = {"default": default, "linear": linear, "llama3": llama3, "yarn": yarn}


def dictionaries(value):
    """All within a configuration that say a theta."""
    if isinstance(value, dict):
        if "rope_theta" in value:
            yield value
        for each in value.values():
            yield from dictionaries(each)


def scalings_of(config):
    """Of a model of transformers: functions of half a head's width, each with the attributes that it says."""
    if config is None:
        return []
    scaling, theta = getattr(config, "rope_scaling", None) or {}, getattr(config, "rope_theta", None)  # transformers 4 has theta beside the scaling
    said = {"rope_parameters": getattr(config, "rope_parameters", None) or {}, "rope_scaling": {"rope_theta": theta, **scaling} if theta else scaling}
    return [reader(each) for each in dictionaries(said) if each.get("rope_type", "default") in KINDS]


def reader(said):
    def attributes(half):
        try:
            return {"theta": said["rope_theta"], **KINDS[said.get("rope_type", "default")](said, half)}
        except (KeyError, TypeError, ValueError, ZeroDivisionError):
            return None
    return attributes
