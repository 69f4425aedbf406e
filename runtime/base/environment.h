/* environment.h: the variables of the environment that choose how ranks compute. */
#ifndef PEN_ENVIRONMENT_H
#define PEN_ENVIRONMENT_H

/* Fails with PEN_EXIT_USAGE, naming variable, value and what is allowed on this machine, if one of
 * environment.def has another value. A variable that is empty counts as absent. Values for a device
 * or transport that the plan does not use are allowed. */
void pen_environment_check(void);

/* The value of a variable; null: it is absent or empty. */
const char *pen_environment(const char *name);

#endif
