"""sampling.py windows LINES SEQUENCE: the texts of generate's LINES, prompt included, in windows of SEQUENCE bytes.
sampling.py check LINES LOGITS SEQUENCE VOCAB SEED [OPTION VALUE]...: each token of LINES is what its seed and place draw from
score's LOGITS of these windows, by the processors of transformers where there is torch, else by the same steps in f64.

A line may have a seed: of prompts.json, by the prompt."""
import hashlib
import json
import math
import sys

MASK = (1 << 64) - 1


def mixed(x):
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def uniform(seed, text, place):
    key = int.from_bytes(hashlib.sha256(seed.to_bytes(8, "little") + b"generate").digest()[:8], "little")
    golden = 0x9E3779B97F4A7C15
    return (mixed(mixed(key + (text + 1) * golden & MASK) + (place + 1) * golden & MASK) >> 11) / 2**53


def softmax(scores):
    most = max(scores)
    weights = [math.exp(score - most) for score in scores]
    return [weight / sum(weights) for weight in weights]


def steps(logits, tokens, options):
    """The scores after all steps; a token that is removed has -inf."""
    scores, penalty = list(logits), options["--repetition-penalty"]
    for token in set(tokens):
        scores[token] = scores[token] / penalty if scores[token] > 0 else scores[token] * penalty
    if options["--temperature"] == 0:
        return scores
    scores = [score / options["--temperature"] for score in scores]
    k = int(options["--top-k"])
    if k > 0:
        least = sorted(scores, reverse=True)[min(k, len(scores)) - 1]
        scores = [score if score >= least else -math.inf for score in scores]
    rising, up_to = sorted(range(len(scores)), key=lambda i: (scores[i], -i)), 0
    p = softmax(scores)
    for i in rising[:-1] if options["--top-p"] < 1 else []:
        up_to += p[i]
        scores[i] = -math.inf if up_to <= 1 - options["--top-p"] else scores[i]
    p = softmax(scores)
    return [score if p[i] >= options["--min-p"] * max(p) else -math.inf for i, score in enumerate(scores)]


def transformers_steps():
    """The same by transformers' classes; None without them."""
    try:
        import torch
        import transformers as hf
    except ImportError:
        return None

    def scores_of(logits, tokens, options):
        processors = hf.LogitsProcessorList([hf.RepetitionPenaltyLogitsProcessor(options["--repetition-penalty"])])
        if options["--temperature"] > 0:
            processors.append(hf.TemperatureLogitsWarper(options["--temperature"]))
            if options["--top-k"] > 0:
                processors.append(hf.TopKLogitsWarper(int(options["--top-k"])))
            processors.append(hf.TopPLogitsWarper(options["--top-p"]))
            processors.append(hf.MinPLogitsWarper(options["--min-p"]))
        return processors(torch.tensor([tokens]), torch.tensor([logits], dtype=torch.float64))[0].tolist()

    return scores_of


def texts_of(lines):
    for line in open(lines):
        value = json.loads(line)
        yield value["prompt"], value["text"]


def windows(lines, sequence):
    for prompt, text in texts_of(lines):
        sys.stdout.write((prompt + text).ljust(int(sequence), "\0"))
    sys.stdout.write("\0")


def agrees(scores, token, number, temperature):
    """Whether a number draws the token, to the rounding of the bounds."""
    if temperature == 0:
        return scores[token] > max(scores) - 1e-5
    p = softmax(scores)
    below = sum(p[:token])
    return p[token] > 0 and below - 1e-5 < number < below + p[token] + 1e-5


def check(lines, logits, sequence, vocab, seed, *given):
    options = {"--temperature": 0.8, "--top-k": 0.0, "--top-p": 1.0, "--min-p": 0.0, "--repetition-penalty": 1.0}
    options.update((name, float(value)) for name, value in zip(given[::2], given[1::2]))
    rows = [json.loads(line) for line in open(logits)]
    seeds = {value["prompt"]: value.get("seed") for value in map(json.loads, open("prompts.json"))}
    scores_of = transformers_steps()
    print("# with transformers" if scores_of else "# without transformers")
    drawn = 0
    for index, (prompt, text) in enumerate(texts_of(lines)):
        own = seeds[prompt]
        tokens = list((prompt + text).encode())
        for place in range(len(text)):
            at = len(prompt) + place
            row = [0.0] * int(vocab)
            for token, logit in rows[index * int(sequence) + at]:
                row[token] = logit
            number = uniform(int(seed), index, place) if own is None else uniform(own, 0, place)
            for steps_of in filter(None, (steps, scores_of)):
                scores = steps_of(row, tokens[:at], options)
                assert agrees(scores, tokens[at], number, options["--temperature"]), (index, place, tokens[at], number)
            drawn += 1
    print(drawn)


{"windows": windows, "check": check}[sys.argv[1]](*sys.argv[2:])
