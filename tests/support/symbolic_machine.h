/* symbolic_machine.h: executes the actions of a plan over several steps, without any proof. Ranks
 * take turns at random. The machine tags each 64 bytes with the value that they hold, and checks
 * the tags of what each op reads and each message carries. Each step may have another profile: all
 * ranks end the previous step before it (runtime/plan/plan.h). */
#ifndef PEN_SYMBOLIC_MACHINE_H
#define PEN_SYMBOLIC_MACHINE_H

#include "gen/model/op_signature.h"
#include "gen/base/arena.h"
#include "runtime/plan/plan.h"
#include "tests/support/plan_fixture.h"

enum { STEPS = 4 };

/* Runs STEPS steps of the profiles sequence[step], with random turns; at times some ranks are much
 * faster than others. False: the ranks are deadlocked, or an op reads a wrong value. */
bool machine_runs_all(const struct pen_plan *plan, const struct pen_profile *const *sequence,
                      uint64_t *seed);

/* machine_runs_all() with the same profile in every step. */
bool machine_runs(const struct pen_plan *plan, const struct pen_profile *profile, uint64_t *seed);

#endif
