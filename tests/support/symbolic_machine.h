/* symbolic_machine.h: runs the actions of a plan over several steps without any proof. Ranks take
 * turns at random. The machine tags every 64 bytes with the value that they hold, and checks the
 * tags of what each op reads and each message carries. Each step may be of another profile: all
 * ranks then end the step before it first (runtime/plan/plan.h). */
#ifndef PEN_TESTS_SYMBOLIC_MACHINE_H
#define PEN_TESTS_SYMBOLIC_MACHINE_H

#include "gen/model/op_signature.h"
#include "gen/base/arena.h"
#include "runtime/plan/plan.h"
#include "tests/support/plan_fixture.h"

enum { STEPS = 4 };

/* Runs STEPS steps, of profile sequence[step], with random turns; some ranks are much faster than
 * others for a while. False: the ranks are deadlocked, or an op read a wrong value. */
bool machine_runs_all(const struct pen_plan *plan, const struct pen_profile *const *sequence,
                      uint64_t *seed);

/* machine_runs_all() with the same profile in every step. */
bool machine_runs(const struct pen_plan *plan, const struct pen_profile *profile, uint64_t *seed);

#endif
