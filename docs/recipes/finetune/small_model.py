"""small_model.py FOLDER: a folder like that of a chat model of Hugging Face, without weights, for those who have none at hand.

A Qwen3 of 0.2 M weights. Its tokenizer has a token for each byte and those that mark turns: no words, so that no training is needed."""

import json
import os
import sys

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = ("{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def letters():
    """The letter that stands for each byte in tokenizers by bytes: itself where it can be seen, else one from U+0100 on."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in seen]
    return [chr(byte) if byte in seen else chr(256 + hidden.index(byte)) for byte in range(256)]


def write(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)


def main(folder):
    os.makedirs(folder, exist_ok=True)
    ends = {token: 256 + index for index, token in enumerate(SPECIAL)}
    added = [dict(id=number, content=token, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
             for token, number in ends.items()]
    by_bytes = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=False)
    write(folder, "tokenizer.json", dict(
        version="1.0", truncation=None, padding=None, normalizer=None, post_processor=None, added_tokens=added, pre_tokenizer=by_bytes, decoder=by_bytes,
        model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=False,
                   byte_fallback=False, vocab={letter: byte for byte, letter in enumerate(letters())}, merges=[])))
    write(folder, "tokenizer_config.json", dict(tokenizer_class="PreTrainedTokenizerFast", eos_token=SPECIAL[2], chat_template=TEMPLATE))
    write(folder, "generation_config.json", dict(eos_token_id=[ends[SPECIAL[2]], ends[SPECIAL[0]]]))
    write(folder, "config.json", dict(
        architectures=["Qwen3ForCausalLM"], model_type="qwen3", vocab_size=264, hidden_size=64, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, intermediate_size=160, max_position_embeddings=256, rms_norm_eps=1e-6, rope_theta=10000.0,
        hidden_act="silu", attention_bias=False, tie_word_embeddings=False, initializer_range=0.02))


main(sys.argv[1])
