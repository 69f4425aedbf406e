"""hf.py: a model of transformers by its folder: the class that config.json names, and the names of the tensors that the folder has.

A padding token is a token like any other: it is taken out of the configuration, since Penstock's data have none. Models whose positions begin
after its number keep it, but it has a position, too."""
import json
import os
import struct

from experts import PARTS, common_name, with_star
from failure import BAD_DATA, NO_INPUT, NO_LIBRARY, Failure

PLACES = "create_position_ids_from_input_ids"  # of modules of transformers
SMALL = {"num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 48, "vocab_size": 128, "sliding_window": 6, "moe_intermediate_size": 48}


def read_config(folder):
    """config.json, as it is."""
    path = os.path.join(folder, "config.json")
    try:
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
    except OSError as error:
        raise Failure(NO_INPUT, f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise Failure(BAD_DATA, f"{path}: {error}") from None
    if not isinstance(config, dict):
        raise Failure(BAD_DATA, f"{path}: an object")
    return config


def transformers_package():
    try:
        import transformers
    except ImportError as error:
        raise Failure(NO_LIBRARY, f"--hf: Python's package transformers is needed: {error}") from None
    transformers.utils.logging.set_verbosity_error()
    return transformers


def shrink(config, layers):
    """The same class with these layers alone, by their numbers, all of them narrow."""
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    few = min(kv_heads, SMALL["num_key_value_heads"])
    config.num_attention_heads, config.num_hidden_layers = few * (heads // kv_heads), len(layers)
    for name, size in {**SMALL, "num_key_value_heads": few}.items():
        if getattr(config, name, None):
            setattr(config, name, size)
    config.hidden_size = config.num_attention_heads * SMALL["head_dim"]
    if getattr(config, "query_pre_attn_scalar", None) == head_dim:
        config.query_pre_attn_scalar = SMALL["head_dim"]
    for name in ("layer_types", "mlp_layer_types"):
        if getattr(config, name, None):
            setattr(config, name, [getattr(config, name)[layer] for layer in layers])
    shrink_dense(config, layers)


def shrink_dense(config, layers):
    """Which of these layers have no experts."""
    if getattr(config, "first_k_dense_replace", None):
        config.first_k_dense_replace = sum(layer < config.first_k_dense_replace for layer in layers)
    if getattr(config, "decoder_sparse_step", None) and getattr(config, "mlp_only_layers", None) is not None:
        dense = [layer in config.mlp_only_layers or (layer + 1) % config.decoder_sparse_step != 0 for layer in layers]
        config.mlp_only_layers, config.decoder_sparse_step = [number for number, is_dense in enumerate(dense) if is_dense], 1


def build_model(folder, layers=None):
    """A model like the folder's, with weights of its own. `layers`: of a small copy, which has these alone."""
    transformers = transformers_package()
    import torch

    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        text = config.get_text_config()
        padding, text.use_cache = getattr(text, "pad_token_id", None), False
        vars(text)["pad_token_id"] = None  # some classes allow numbers alone
        if layers:
            shrink(text, layers)
        model = make_model(transformers, text, torch.float32)
        if padding is not None and placed_modules(model):
            text.pad_token_id = padding
            model = make_model(transformers, text, torch.float32)
            for module in placed_modules(model):
                setattr(module, PLACES, places_of_all)
    except (OSError, ValueError, KeyError) as error:
        raise Failure(BAD_DATA, f"{folder}: transformers makes no causal model of it: {first_line(error)}") from None
    return model.train()


def placed_modules(model):
    """Those that count positions from the padding token's number on, and leave out padding tokens."""
    return [module for module in model.modules() if hasattr(module, PLACES)]


def places_of_all(input_ids, padding_idx, *_):
    import torch

    return (padding_idx + 1 + torch.arange(input_ids.shape[1])).expand(input_ids.shape)


def make_model(transformers, config, dtype):
    """With PyTorch's attention where the class has it, else with its own."""
    try:
        return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    except ValueError:
        return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="eager")


def first_line(error):
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def stored_names(folder):
    """The tensors that the folder has; none: it has no weights."""
    index = os.path.join(folder, "model.safetensors.index.json")
    single = os.path.join(folder, "model.safetensors")
    try:
        if os.path.exists(index):
            with open(index, encoding="utf-8") as file:
                return sorted(json.load(file)["weight_map"])
        if os.path.exists(single):
            with open(single, "rb") as file:
                (length,) = struct.unpack("<Q", file.read(8))
                return sorted(set(json.loads(file.read(length))) - {"__metadata__"})
    except (OSError, ValueError, KeyError, struct.error) as error:
        raise Failure(BAD_DATA, f"{folder}: its weights cannot be read: {first_line(error)}") from None
    return []


def renamed(model, names):
    """From the names of the module to those of the folder that transformers renames when it reads them, and the tensors that it makes of several:
    of a matrix of each expert, or of two, gate and up."""
    try:
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key
    except ImportError:
        return {}, set()  # an older version: its modules have the names of their files
    mapping = get_model_conversion_mapping(model)
    renamings = [each for each in mapping if isinstance(each, WeightRenaming)]
    converters = [each for each in mapping if isinstance(each, WeightConverter)]
    found, merged = {}, {}
    for name in names:
        own, pattern = rename_source_key(name, renamings, converters)
        if pattern is not None:
            merged.setdefault((own, pattern), []).append(name)
        elif own != name:
            found[own] = name
    for (own, pattern), parts in merged.items():
        sources = next(each.source_patterns for each in converters if pattern in each.source_patterns)
        ending = f".{PARTS[sources.index(pattern)]}" if len(sources) == len(PARTS) else ""
        found[with_star(own) + ending] = common_name(sorted(parts, key=numbers_of))
    return found if names else unmerged(model, converters), {own for own, _ in merged}


def unmerged(model, converters):
    """The names that a folder without weights would have for the matrices of each expert."""
    found = {}
    for own, _ in model.named_parameters():
        for converter in converters:
            sources, target = converter.source_patterns, converter.target_patterns[0]
            if own.endswith(target) and all("*" in source for source in sources) and len(sources) in (1, len(PARTS)):
                endings = [f".{part}" for part in PARTS] if len(sources) > 1 else [""]
                found.update({with_star(own) + ending: own.removesuffix(target) + source for ending, source in zip(endings, sources)})
    return found


def numbers_of(name):
    return [int(part) for part in name.split(".") if part.isdigit()]


class StoredNames:
    """From the names of the module to those of the folder, which may lack the prefix of the class, or be others. Without a folder they are the same."""

    def __init__(self, folder, model):
        self.names, self.prefix = set(stored_names(folder)) if folder else set(), getattr(model, "base_model_prefix", "") + "."
        own = [name for name, _ in model.named_parameters() if name.startswith(self.prefix)]
        self.renamed, merged = renamed(model, self.names) if folder else ({}, set())
        self.removes = bool(self.names) and all(name.removeprefix(self.prefix) in self.names | merged for name in own)

    def stored(self, name):
        short = name.removeprefix(self.prefix) if self.removes else name
        return self.renamed.get(name) or self.renamed.get(short) or short
