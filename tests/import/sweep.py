"""sweep.py: which causal classes of transformers penstock-import takes. Run by hand: it takes minutes.

sweep.py PROGRAM FOLDER [TYPE...]: of each model type of transformers (or of these) writes a small config.json into FOLDER/TYPE and imports it there,
each in a process of its own. Prints a line a type: imported, refused (with the first reason), or why the small model itself is none; then counts."""
import collections
import contextlib
import io
import json
import os
import signal
import sys
import warnings

program, folder, *wanted = sys.argv[1:]
sys.path.insert(0, program)
warnings.filterwarnings("ignore")
import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CLASSES

from command import main

SECONDS, PARAMETERS_MOST, SEQUENCE = 90, 30e6, 16
WIDTHS = "hidden_size n_embd d_model dim word_embed_proj_dim embedding_size"
INNER = "intermediate_size ffn_dim n_inner d_ff ffn_hidden_size"
LAYERS = "num_hidden_layers n_layer num_layers n_layers decoder_layers encoder_layers"
HEADS = "num_attention_heads n_head n_heads decoder_attention_heads encoder_attention_heads num_heads"
EXPERTS = "num_experts num_local_experts n_routed_experts"
CHOSEN, OF_ONE = "num_experts_per_tok", "n_group topk_group first_k_dense_replace n_shared_experts"
UNSAID = (EXPERTS, CHOSEN, OF_ONE)  # of which some configurations have no number
POSITIONS = "max_position_embeddings n_positions n_ctx max_seq_len"
SIZES = ((WIDTHS, 48), (INNER, 80), (LAYERS, 2), (HEADS, 6), ("num_key_value_heads num_kv_heads", 2), (EXPERTS, 4), (POSITIONS, 64), ("vocab_size", 97),
         ("head_dim", 8), ("sliding_window", 8), ("rotary_dim", 4), ("q_lora_rank kv_lora_rank", 16), ("qk_rope_head_dim qk_nope_head_dim v_head_dim", 8),
         (CHOSEN, 2), ("moe_intermediate_size", 32), (OF_ONE, 1))


def small(kind):
    """A configuration of that type with two layers, of few elements."""
    usual = CONFIG_MAPPING[kind]().get_text_config()
    sizes = {name: size for names, size in SIZES for name in names.split() if isinstance(getattr(usual, name, None), int) or names in UNSAID and hasattr(usual, name)}
    if getattr(usual, "kv_lora_rank", None):
        sizes["num_key_value_heads"] = sizes["num_attention_heads"]
    for name, value in usual.to_dict().items():
        if isinstance(value, float) and ("drop" in name or name.endswith("pdrop")):
            sizes[name] = 0.0
    if getattr(usual, "layer_types", None):
        sizes["layer_types"] = (list(dict.fromkeys(usual.layer_types)) * 2)[:2]
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        if isinstance(getattr(usual, name, None), int):
            sizes[name] = 1
    return type(usual)(**sizes)


def runs(config):
    """Whether the model has a forward with these sizes; raises what it raises."""
    with torch.device("meta"):
        if sum(weight.numel() for weight in transformers.AutoModelForCausalLM.from_config(config).parameters()) > PARAMETERS_MOST:
            raise ValueError("too large")
    transformers.AutoModelForCausalLM.from_config(config).eval()(input_ids=torch.randint(3, 97, (2, SEQUENCE)), use_cache=False)


def attempt(kind):
    """A word and a reason."""
    try:
        config = small(kind)
        config.architectures = None
        runs(config)
        config.save_pretrained(os.path.join(folder, kind))
    except Exception as error:
        return "no small model", f"{type(error).__name__} {error}"
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        status = main(["--hf", os.path.join(folder, kind), "--sequence", str(SEQUENCE), "-o", os.path.join(folder, f"{kind}.cfg")])
    lines = [line for line in said.getvalue().splitlines() if "is left out" not in line]
    return ("imported" if status == 0 else "refused" if status == 65 else f"status {status}"), lines[0] if lines else ""


def in_child(kind):
    """attempt() in a process that ends after SECONDS."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        os.write(writer, json.dumps(attempt(kind)).encode()[:4000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    try:
        return json.loads(text)
    except ValueError:
        return "no answer", f"within {SECONDS} s"


os.makedirs(folder, exist_ok=True)
transformers.utils.logging.set_verbosity_error()
torch.set_num_threads(1)
counts, seen = collections.Counter(), set()
for kind in wanted or sorted(CLASSES):
    name = CLASSES[kind][0] if isinstance(CLASSES[kind], (list, tuple)) else CLASSES[kind]
    if name in seen:
        continue
    seen.add(name)
    word, reason = in_child(kind)
    counts[word] += 1
    print(f"{kind}: {word}: {' '.join(reason.split())[:200]}", flush=True)
print(", ".join(f"{count} {word}" for word, count in counts.most_common()), f"of {len(seen)} classes, transformers {transformers.__version__}, torch {torch.__version__}")
