/* file_kinds.c: the table of file formats that are not ours (see file_kinds.h). */
#include "base/file_kinds.h"

#include <stdbool.h>
#include <string.h>

#define DATA (PEN_FILE_TEXT | PEN_FILE_JSON_LINES | PEN_FILE_IDS | PEN_FILE_TOKENS)
#define ALL (DATA | PEN_FILE_WEIGHTS)
#define STARTS(text) .start = text, .start_bytes = sizeof(text) - 1

#define MAKE_TOKENS "make a token file of it: penstock-tokens"
#define IDS_BESIDE \
  "the tokens are in the .bin file beside it: penstock-tokens --ids 16, or 32 for larger ids"
#define SAVE_WEIGHTS                                                                               \
  "convert it with Python: safetensors.torch.save_file(torch.load(FILE), \"model.safetensors\"), " \
  "or model.save_pretrained(FOLDER)"
#define SAVE_ARRAYS "save all tensors in one file with Python: safetensors.numpy.save_file"
#define FROM_TEXTS \
  "it is for tokens_hf.py, as the tokenizer.json that transformers' AutoTokenizer saves of it"
#define EXPORT_TEXT                                                                            \
  "write its texts as JSON lines, for instance datasets.load_dataset(...).to_json(FILE), for " \
  "penstock-tokens --field or --messages; tokens_hf.py reads it as it is"

/* The first row that fits counts. */
static const struct pen_file_kind kinds[] = {
    /* compressed */
    {ALL, "compressed by gzip", "decompress it first: gzip -dc", STARTS("\x1f\x8b\x08")},
    {ALL, "compressed by zstd", "decompress it first: zstd -dc", STARTS("\x28\xb5\x2f\xfd")},
    {ALL, "compressed by xz", "decompress it first: xz -dc", STARTS("\xfd\x37zXZ")},
    {ALL, "compressed by bzip2", "decompress it first: bzip2 -dc", STARTS("1AY&SY"), .at = 4},
    /* PyTorch */
    {PEN_FILE_WEIGHTS, "an archive of NumPy arrays", SAVE_ARRAYS, STARTS("PK\3\4"),
     .ending = ".npz"},
    {PEN_FILE_WEIGHTS, "a file of torch.save", SAVE_WEIGHTS, STARTS("PK\3\4")},
    {PEN_FILE_WEIGHTS, "a file of torch.save", SAVE_WEIGHTS, STARTS("\x80\2\x8a\x0al\xfc\x9c\x46")},
    {PEN_FILE_WEIGHTS, "a pickle", SAVE_WEIGHTS, .ending = "pytorch_model.bin"},
    {PEN_FILE_WEIGHTS, "a GGUF file",
     "its weights are quantised: take the safetensors files that it was made of", STARTS("GGUF")},
    {PEN_FILE_WEIGHTS, "an HDF5 file",
     "save the model with transformers: model.save_pretrained(FOLDER)", STARTS("\x89HDF\r\n")},
    {PEN_FILE_WEIGHTS, "a NumPy array", SAVE_ARRAYS, STARTS("\x93NUMPY")},
    {DATA, "a zip archive", "unpack it first: unzip", STARTS("PK\3\4")},
    /* data sets */
    {ALL, "a Parquet file", EXPORT_TEXT, STARTS("PAR1")},
    {ALL, "an Arrow file", EXPORT_TEXT, STARTS("ARROW1")},
    {DATA & ~PEN_FILE_TOKENS, "a NumPy array",
     "write its numbers alone with Python, numpy.load(FILE).astype(\"<u2\").tofile(\"ids\"), for "
     "penstock-tokens --ids 16, or \"<u4\" for --ids 32",
     STARTS("\x93NUMPY")},
    {PEN_FILE_TOKENS, "an index of Megatron-LM",
     "give the .bin file beside it, or *.bin of several", STARTS("MMIDIDX")},
    {ALL, "an index of Megatron-LM", IDS_BESIDE, STARTS("MMIDIDX")},
    {ALL, "an index of Megatron-LM", IDS_BESIDE, STARTS("TNTIDX")},
    /* tokenizers */
    {ALL, "a tokenizer of SentencePiece", FROM_TEXTS, STARTS("\n\5<"), .at = 2},
    {ALL, "a tokenizer", FROM_TEXTS, .ending = "tokenizer.model"},
    /* ours */
    {DATA & ~PEN_FILE_TOKENS, "a token file already", "use it as it is: --data",
     STARTS("\x88\xd8\x34\x01\1\0\0\0")},
    {DATA & ~PEN_FILE_TOKENS, "a token file already", "use it as it is: --data",
     STARTS("\xa1\xd9\x34\x01\7\0\0\0")},
    {DATA & ~PEN_FILE_TOKENS, "a packed token file already", "use it as it is: --data",
     STARTS("PENPACK")},
    {PEN_FILE_WEIGHTS, "a token file", "it is for --data", STARTS("\x88\xd8\x34\x01\1\0\0\0")},
    {PEN_FILE_WEIGHTS, "a token file", "it is for --data", STARTS("\xa1\xd9\x34\x01\7\0\0\0")},
    {PEN_FILE_WEIGHTS, "a packed token file", "it is for --data", STARTS("PENPACK")},
    {PEN_FILE_WEIGHTS, "a checkpoint of llm.c",
     "convert it with the scripts of llm.c, or start from the model's safetensors files",
     STARTS("\xc6\xd7\x34\x01")},
    {PEN_FILE_IDS | PEN_FILE_TOKENS, "a safetensors file", "it holds weights: --init",
     STARTS("{\""), .at = 8},
    /* text in place of numbers */
    {PEN_FILE_JSON_LINES, "a JSON array",
     "JSON lines are needed, an object on each line: jq -c '.[]'", STARTS("[")},
    {PEN_FILE_IDS, "JSON", "ids are binary numbers: texts need --field or --messages",
     STARTS("{\"")},
    {PEN_FILE_TOKENS, "JSON", MAKE_TOKENS " --field or --messages", STARTS("{\"")},
    {PEN_FILE_TOKENS, "a JSON array",
     "make JSON lines of it, jq -c '.[]', for penstock-tokens --field or --messages", STARTS("[{")},
    {PEN_FILE_TOKENS, "text", MAKE_TOKENS " --bytes, or tokens_hf.py", .ending = ".txt"},
};

static bool ends_in(const char *path, const char *ending) {
  const size_t length = strlen(path), tail = strlen(ending);
  return tail <= length && strcmp(path + length - tail, ending) == 0;
}

size_t pen_mark_bytes(const char *text, size_t bytes) {
  return bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

const struct pen_file_kind *pen_file_kind_of(enum pen_file_use use, const char *path,
                                             const void *first, size_t bytes) {
  const char *text = first;
  size_t blank = pen_mark_bytes(text, bytes); /* JSON may begin with white space */
  while (blank < bytes && text[blank] != '\0' && strchr(" \t\r\n", text[blank]) != NULL) blank++;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    const struct pen_file_kind *kind = &kinds[i];
    const bool is_json = kind->start != NULL && strchr("[{", *kind->start) != NULL && kind->at == 0;
    const size_t at = is_json ? blank : kind->at;
    if ((kind->uses & use) != 0 &&
        (kind->start == NULL || (bytes >= at + kind->start_bytes &&
                                 memcmp(text + at, kind->start, kind->start_bytes) == 0)) &&
        (kind->ending == NULL || ends_in(path, kind->ending))) {
      return kind;
    }
  }
  return NULL;
}
