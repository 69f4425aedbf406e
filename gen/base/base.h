/* base.h: what every other folder of gen/ uses. It includes nothing and no file includes it.
 *
 *   arena.h       memory and texts that live until the generator ends
 *   error.h       ends the generator with a message and an exit status
 *   heap.h        a priority queue of indices
 *   json_file.h   reads a JSON file, and refuses a value of one
 *   pass_times.h  processor time and peak memory of each pass, for --times
 *   sort.h        sorts indices by 64-bit keys
 *   version.h     the version that the generator prints
 *
 * In: sizes, texts and keys of the passes. Out: zeroed memory, formatted texts, sorted indices. A
 * function here reads no topology and no plan, and does not return when it fails.
 */
#ifndef PEN_GEN_BASE_H
#define PEN_GEN_BASE_H
#endif
