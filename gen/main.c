/* main.c: penstock-gen: generates the plan of a topology. */
#include "config.h"

#include "gen/base/arena.h"
#include "gen/pipeline/generate.h"
#include "gen/pipeline/options.h"
#include "gen/topology/defaults.h"

#ifndef PEN_AUTO_DEVICE /* the tests' generator defines it as PEN_DEVICE_CPU */
#define PEN_AUTO_DEVICE PEN_CONFIGURED_DEVICE
#endif

int main(int argc, char **argv) {
  pen_device_auto = PEN_AUTO_DEVICE;
  pen_generate(pen_generator_options_read(argc, argv));
  pen_free_all();
  return 0;
}
