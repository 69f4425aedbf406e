/* generate.h: the whole generator: the plan of a topology, those of its fallbacks and of the
 * command `measure`, verified, and what --print and the other options select of them. */
#ifndef PEN_GENERATE_H
#define PEN_GENERATE_H

#include "gen/pipeline/options.h"

/* Runs all passes and writes the files that the options select. Ends the generator if a pass fails.
 */
void pen_generate(const struct pen_generator_options *options);

#endif
