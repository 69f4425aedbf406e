"""The p50 and p99 of the makespan of an order under noise, computed apart from the generator.

    robustness_reference.py ORDER.csv FORWARD INPUT WEIGHT SEND KIND NOISE DRAWS SEED

ORDER.csv is the output of --print=csv; every stage has the same costs.
"""
import csv, math, random, re, sys

rows = [[cell for cell in row if cell] for row in csv.reader(open(sys.argv[1]))]
forward, for_input, for_weight, send = map(float, sys.argv[2:6])
kind, noise, draws, seed = sys.argv[6], float(sys.argv[7]), int(sys.argv[8]), int(sys.argv[9])
costs = {"F": forward, "I": for_input, "W": for_weight, "B": for_input + for_weight}
lists = [[(m[2], int(m[1]), int(m[3])) for m in (re.fullmatch(r"(\d+)([FBIW])(\d+)", c) for c in row)] for row in rows]
rank_of = {stage: rank for rank, actions in enumerate(lists) for _, stage, _ in actions}
last = max(rank_of)


def sources(action):
  """What an action waits for, but for its own rank's list."""
  what, stage, m = action
  if what == "F" and stage > 0: return [("F", stage - 1, m)]
  if what in "BI" and stage < last: return [("B", stage + 1, m), ("I", stage + 1, m)]
  return []


def order_of_all():
  """The actions with their ranks, each after all that it waits for."""
  done, at, found = set(), [0] * len(lists), []
  known = {action for actions in lists for action in actions}
  while any(i < len(actions) for i, actions in zip(at, lists)):
    before = len(found)
    for rank, actions in enumerate(lists):
      while at[rank] < len(actions):
        action = actions[at[rank]]
        needs = [s for s in sources(action) if s in known]
        if any(s not in done for s in needs): break
        found.append((rank, action, needs))
        done.add(action)
        at[rank] += 1
    assert len(found) > before, "deadlock"
  return found


plan, chance, makespans = order_of_all(), random.Random(seed), []
for _ in range(draws):
  of_rank = [chance.gauss(0, 1) for _ in lists]
  end, free = {}, [0.0] * len(lists)
  for rank, action, needs in plan:
    z = of_rank[rank] if kind == "rank" else chance.gauss(0, 1)
    arrivals = [end[s] + (send if rank_of[s[1]] != rank else 0) for s in needs]
    end[action] = free[rank] = max([free[rank]] + arrivals) + costs[action[0]] * math.exp(noise * z - noise * noise / 2)
  makespans.append(max(free))
makespans.sort()
print(makespans[math.ceil(0.5 * draws) - 1], makespans[math.ceil(0.99 * draws) - 1])
