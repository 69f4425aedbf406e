"""Fine-tuning on masked data by Hugging Face's transformers, to hold the losses of train against.

masks_hf.py make FOLDER    writes small models into folders of FOLDER, named after their families
masks_hf.py train FOLDER TOKENS SEQUENCE WINDOWS STEPS RATE
                           trains the model in FOLDER with labels of -100 where the file's mask has 0, so many windows a step, each step one batch;
                           prints for each step the loss and how many labels count. AdamW as it is by default in a topology, with that rate"""
import struct
import sys

import torch
import transformers

transformers.utils.logging.set_verbosity_error()
SIZES = dict(vocab_size=256, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=32, initializer_range=0.1)


def make(folder):
    for config in (transformers.LlamaConfig(**SIZES), transformers.Qwen3Config(**SIZES, head_dim=16, tie_word_embeddings=True),
                   transformers.GPT2Config(vocab_size=256, n_embd=36, n_layer=3, n_head=4, n_positions=32, initializer_range=0.1,
                                           attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)):
        torch.manual_seed(7)
        model = transformers.AutoModelForCausalLM.from_config(config)
        model.save_pretrained(f"{folder}/{config.model_type}")


def bits(mask, count):
    return [mask[t // 8] >> t % 8 & 1 for t in range(count)]


def plain_windows(data, sequence):
    """Rows of sequence + 1 tokens with their labels: transformers shifts labels by one."""
    count = struct.unpack_from("<5i", data)[2]
    tokens = struct.unpack_from(f"<{count}H", data, 1024)
    counts = bits(data[1024 + 2 * count:], count)
    for first in range(0, count - sequence, sequence):
        row = range(first, first + sequence + 1)
        yield [([tokens[t] for t in row], [tokens[t] if counts[t] else -100 for t in row])]


def packed_windows(data, _sequence):
    """Each document of a window is a row."""
    _, _, _, windows, documents, count = struct.unpack_from("<8sIIQQQ", data)
    at = (64 + 2 * count + 7) // 8 * 8
    tokens, counts = struct.unpack_from(f"<{count}H", data, 64), bits(data[at + 16 * documents + 32 * windows:], count)
    lengths = [struct.unpack_from("<QII", data, at + 16 * d)[2] for d in range(documents)]
    for w in range(windows):
        first_token, first_document, _, here = struct.unpack_from("<QQII", data, at + 16 * documents + 32 * w)
        rows = []
        for length in lengths[first_document:first_document + here]:
            row = range(first_token, first_token + length)
            rows.append(([tokens[t] for t in row], [tokens[t] if counts[t] else -100 for t in row]))
            first_token += length
        yield rows


def batch(rows):
    longest = max(len(tokens) for tokens, _ in rows)
    return dict(input_ids=torch.tensor([tokens + [0] * (longest - len(tokens)) for tokens, _ in rows]),
                attention_mask=torch.tensor([[1] * len(tokens) + [0] * (longest - len(tokens)) for tokens, _ in rows]),
                labels=torch.tensor([labels + [-100] * (longest - len(labels)) for _, labels in rows]))


def train(folder, path, sequence, windows, steps, rate):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").train()
    parameters = list(model.parameters())
    groups = [dict(params=[p for p in parameters if p.dim() == 2], weight_decay=0.1), dict(params=[p for p in parameters if p.dim() != 2], weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, lr=float(rate), betas=(0.9, 0.95), eps=1e-8)
    with open(path, "rb") as file:
        data = file.read()
    rows_of = list((packed_windows if data[:7] == b"PENPACK" else plain_windows)(data, int(sequence)))
    for step in range(int(steps)):
        inputs = batch([row for w in range(int(windows)) for row in rows_of[(step * int(windows) + w) % len(rows_of)]])
        loss = model(**inputs).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        print("%.9g %d" % (loss.item(), (inputs["labels"][:, 1:] != -100).sum().item()))


{"make": make, "train": train}[sys.argv[1]](*sys.argv[2:])
