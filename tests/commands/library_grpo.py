"""GRPO by a library (library_python.t): a policy whose loss is GRPO's, clipped and with KL (tests/models/grpo_small.json), trains, generates and scores; a
second session of the same library stays what it was. The reward of a text is how many of its new tokens are below 8. Prints the mean reward of each batch."""
import numpy, penstock

GROUPS, SIZE, PROMPT, NEW, VOCAB, BATCHES = 4, 4, 4, 12, 32, 25
policy, reference = (penstock.open("./libpenstock-policy.so", seed=7) for _ in range(2))
random = numpy.random.default_rng(1)

def log_probabilities(of, tokens, taken):
    return numpy.nan_to_num(of.score({"idx": tokens, "taken": taken})).astype(numpy.float32)

for batch in range(BATCHES):
    prompts = numpy.repeat(random.integers(0, VOCAB, (GROUPS, PROMPT)), SIZE, axis=0)
    new = numpy.array(policy.generate(prompts, NEW, temperature=1, seed=batch))
    reward = (new < 8).mean(axis=1).reshape(GROUPS, SIZE)
    advantage = (reward - reward.mean(axis=1, keepdims=True)) / (reward.std(axis=1, keepdims=True) + 1e-4)
    tokens = numpy.concatenate([prompts, new], axis=1).astype(numpy.int32)
    taken = numpy.full(tokens.shape, -100)
    taken[:, PROMPT - 1 : -1] = tokens[:, PROMPT:]  # what follows a token, where the policy has chosen it
    samples = {
        "idx": tokens,
        "taken": taken,
        "old": log_probabilities(policy, tokens, taken),
        "reference": log_probabilities(reference, tokens, taken),
        "advantage": numpy.repeat(advantage.reshape(-1, 1), tokens.shape[1], axis=1).astype(numpy.float32),
        "mask": (taken >= 0).astype(numpy.uint8),
    }
    policy.step(samples)
    policy.step(samples)
    print(reward.mean())
policy.close()
reference.close()
