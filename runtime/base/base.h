/* base.h: what every other folder of runtime/ uses. It includes nothing and no file includes it.
 *
 *   check.h          ends the process with one line on standard error and an exit status
 *   options.h        the command line (options.def)
 *   patterns.h       the files that match a pattern
 *   files.h          file operations that need no allocator
 *   text_writer.h    the texts that commands print
 *   futex_counter.h  a counter that processes wait for
 *   seal.h           what is forbidden after start-up
 *   crc32.h          a checksum
 *   key.h            the key of a stream of random numbers
 *   learning_rate.h  the schedule of the learning rate
 *   safetensors_header.h  which tensors a safetensors file has
 *
 * In: texts, paths, numbers, settings of the optimizer. Out: the same checked, written or computed.
 * Nothing here knows ranks, and of a plan only its optimizer. */
#ifndef PEN_RUNTIME_BASE_H
#define PEN_RUNTIME_BASE_H
#endif
