/* export.h: a checkpoint as a model of transformers, in another dtype. */
#ifndef PEN_CONVERT_EXPORT_H
#define PEN_CONVERT_EXPORT_H

/* Writes the weights of a checkpoint (its folder, or that of the run, whose latest is taken) into
 * the folder `to`, which is new or empty, with its config and the files that it keeps. `dtype`:
 * "f32" or "bf16", to the nearest, ties to even. The checksums of the manifest are verified. Ends
 * the program with the file's name if something is wrong: 64 for another dtype, 65, 66, 73 or 74;
 * then there is no new folder. */
void convert_export(const char *checkpoint, const char *to, const char *dtype);

#endif
