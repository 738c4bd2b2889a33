/*
 * safetensors: tensors by name in files, Hugging Face's format for the weights of models. A file is
 * a length of 8 bytes, a JSON object with type, shape and offsets of each tensor, and the data,
 * row-major and little-endian.
 *
 * Input is not trusted: every size is checked against the file before it is used, and the tensors
 * must tile the data without gaps or overlaps. Failures name file and tensor.
 *
 * Source of the format: the README of the safetensors library.
 */
#ifndef ERG_TRAIN_FILES_SAFETENSORS_H
#define ERG_TRAIN_FILES_SAFETENSORS_H

#include "ergon/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum erg_safetensor_type {
    ERG_SAFETENSOR_F32,
    ERG_SAFETENSOR_BF16,
    ERG_SAFETENSOR_F16,
    ERG_SAFETENSOR_I32,
    ERG_SAFETENSOR_I64,
    ERG_SAFETENSOR_OTHER
};

enum { ERG_SAFETENSOR_MOST_DIMENSIONS = 8 };

struct erg_safetensor {
    char *name;
    const char *file;      /* that contains it */
    const char *type_name; /* as the file writes it: "BF16" */
    enum erg_safetensor_type type;
    size_t dimensions;
    uint64_t shape[ERG_SAFETENSOR_MOST_DIMENSIONS], count; /* count: their product */
    const unsigned char *data;                             /* unaligned */
    uint64_t bytes;
};

/* Tensors of one file or several, sorted by name. */
struct erg_safetensors {
    struct erg_safetensor *items;
    size_t count, capacity;
    void *files; /* private */
};

/*
 * `path`: a file, or a model's folder with model.safetensors, or with model.safetensors.index.json
 * and the files in it; every name of the index must be in its file, and every tensor of a file in
 * the index. Files stay mapped until release.
 */
int erg_safetensors_open(struct erg_safetensors *set, const char *path, struct erg_error *err);
/*
 * Adds the tensors of one file from memory, which must stay valid; `name` is its name in messages.
 * All-zero is a valid empty set. Release it, even after a failure.
 */
int erg_safetensors_parse(struct erg_safetensors *set, const char *name, const void *bytes,
                          size_t length, struct erg_error *err);
void erg_safetensors_release(struct erg_safetensors *set);

/* NULL: there is no tensor of this name. */
const struct erg_safetensor *erg_safetensors_find(const struct erg_safetensors *set,
                                                  const char *name);

/* Elements [first, first + count) of an F32, BF16 or F16 tensor as floats, exactly. Fails for other
 * types, which it names. */
int erg_safetensor_read(const struct erg_safetensor *tensor, uint64_t first, size_t count,
                        float *out, struct erg_error *err);

/* A tensor to write; in the file, tensors are sorted by name. */
struct erg_safetensor_spec {
    const char *name;
    enum erg_safetensor_type type; /* F32 or BF16 */
    size_t dimensions;
    uint64_t shape[ERG_SAFETENSOR_MOST_DIMENSIONS];
};

/*
 * Writes one file in one step (io/file.h). `fill` provides the elements of one tensor at a time,
 * values[product of its shape]; BF16 rounds to nearest, ties to even.
 */
int erg_safetensors_write(const char *path, const struct erg_safetensor_spec *specs, size_t count,
                          int (*fill)(void *context, size_t index, float *values,
                                      struct erg_error *err),
                          void *context, struct erg_error *err);

#endif
