/* Reads safetensors: one file, or the files of an index. */
#include "train/files/safetensors.h"

#include "base/memory.h"
#include "io/file.h"
#include "io/file_map.h"
#include "io/json.h"
#include "ops/bf16.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PREFIX_BYTES = 8, MOST_HEADER_BYTES = 100000000 };

/* A mapped file; the list is freed with the set. */
struct mapped {
    struct mapped *next;
    char *name;
    void *bytes; /* NULL: owned by the caller */
    size_t length;
};

static const struct {
    const char *name;
    enum erg_safetensor_type type;
    unsigned bits;
} types[] = {
    {"F32", ERG_SAFETENSOR_F32, 32},      {"BF16", ERG_SAFETENSOR_BF16, 16},
    {"F16", ERG_SAFETENSOR_F16, 16},      {"I32", ERG_SAFETENSOR_I32, 32},
    {"I64", ERG_SAFETENSOR_I64, 64},      {"BOOL", ERG_SAFETENSOR_OTHER, 8},
    {"U8", ERG_SAFETENSOR_OTHER, 8},      {"I8", ERG_SAFETENSOR_OTHER, 8},
    {"F8_E5M2", ERG_SAFETENSOR_OTHER, 8}, {"F8_E4M3", ERG_SAFETENSOR_OTHER, 8},
    {"F8_E8M0", ERG_SAFETENSOR_OTHER, 8}, {"I16", ERG_SAFETENSOR_OTHER, 16},
    {"U16", ERG_SAFETENSOR_OTHER, 16},    {"U32", ERG_SAFETENSOR_OTHER, 32},
    {"U64", ERG_SAFETENSOR_OTHER, 64},    {"F64", ERG_SAFETENSOR_OTHER, 64},
    {"C64", ERG_SAFETENSOR_OTHER, 64},    {"F4", ERG_SAFETENSOR_OTHER, 4},
    {"F6_E2M3", ERG_SAFETENSOR_OTHER, 6}, {"F6_E3M2", ERG_SAFETENSOR_OTHER, 6},
};

/* ---- one file ---- */

/* A whole number in [0, 2^63); -1: not one. */
static int64_t natural(const json_t *value)
{
    return json_is_integer(value) ? (int64_t)json_integer_value(value) : -1;
}

static int read_shape(struct erg_safetensor *tensor, const struct erg_json_place *place,
                      struct erg_error *err)
{
    const json_t *shape;
    if (erg_json_array(place, "shape", &shape, err) != 0)
        return -1;
    tensor->dimensions = json_array_size(shape);
    if (tensor->dimensions > ERG_SAFETENSOR_MOST_DIMENSIONS)
        return erg_json_fail(place, "shape", err, "expected at most %d dimensions, got %zu",
                             ERG_SAFETENSOR_MOST_DIMENSIONS, tensor->dimensions);
    tensor->count = 1;
    for (size_t i = 0; i < tensor->dimensions; i++) {
        int64_t size = natural(json_array_get(shape, i));
        if (size < 0)
            return erg_json_fail(place, "shape", err, "expected whole numbers of at least 0");
        tensor->shape[i] = (uint64_t)size;
        if (__builtin_mul_overflow(tensor->count, tensor->shape[i], &tensor->count))
            return erg_json_fail(place, "shape", err, "expected fewer than 2^64 elements");
    }
    return 0;
}

static int read_type(struct erg_safetensor *tensor, unsigned *bits,
                     const struct erg_json_place *place, struct erg_error *err)
{
    const char *name;
    if (erg_json_string(place, "dtype", &name, err) != 0)
        return -1;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0) {
            tensor->type_name = types[i].name;
            tensor->type = types[i].type;
            *bits = types[i].bits;
            return 0;
        }
    return erg_json_fail(place, "dtype", err, "the type '%s' is unknown", name);
}

/* Reads one tensor; its data are in data[data_bytes]. */
static int read_tensor(struct erg_safetensor *tensor, const struct erg_json_place *place,
                       const unsigned char *data, uint64_t data_bytes, struct erg_error *err)
{
    const json_t *offsets;
    unsigned bits = 0;
    uint64_t all_bits;
    if (read_type(tensor, &bits, place, err) != 0 || read_shape(tensor, place, err) != 0 ||
        erg_json_array(place, "data_offsets", &offsets, err) != 0)
        return -1;
    int64_t begin = natural(json_array_get(offsets, 0)), end = natural(json_array_get(offsets, 1));
    if (json_array_size(offsets) != 2 || begin < 0 || end < begin || (uint64_t)end > data_bytes)
        return erg_json_fail(place, "data_offsets", err,
                             "expected begin and end of [0, %llu], the size of the data",
                             (unsigned long long)data_bytes);
    tensor->data = data + begin;
    tensor->bytes = (uint64_t)(end - begin);
    if (__builtin_mul_overflow(tensor->count, (uint64_t)bits, &all_bits) || all_bits % 8 ||
        all_bits / 8 != tensor->bytes)
        return erg_json_fail(place, "data_offsets", err,
                             "expected the number of bytes of the shape, got %llu",
                             (unsigned long long)tensor->bytes);
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const struct erg_safetensor *left = a, *right = b;
    if (left->data != right->data)
        return left->data < right->data ? -1 : 1;
    return (left->bytes > right->bytes) - (left->bytes < right->bytes);
}

static int by_name(const void *a, const void *b)
{
    const struct erg_safetensor *left = a, *right = b;
    return strcmp(left->name, right->name);
}

/* Checks that the tensors of one file, items[first ...], are contiguous. */
static int check_tiles(struct erg_safetensors *set, size_t first, const char *file,
                       const unsigned char *data, uint64_t data_bytes, struct erg_error *err)
{
    struct erg_safetensor *items = set->items + first;
    size_t count = set->count - first;
    const unsigned char *at = data;
    qsort(items, count, sizeof *items, by_place);
    for (size_t i = 0; i < count; i++) {
        if (items[i].data != at)
            return erg_fail(err, ERG_FAILED,
                            "%s: tensor '%s' begins at byte %llu of the data, expected %llu, where "
                            "the previous one ends",
                            file, items[i].name, (unsigned long long)(items[i].data - data),
                            (unsigned long long)(at - data));
        at += items[i].bytes;
    }
    if ((uint64_t)(at - data) != data_bytes)
        return erg_fail(err, ERG_FAILED,
                        "%s: the tensors end at byte %llu of the data, expected %llu, where the "
                        "file ends",
                        file, (unsigned long long)(at - data), (unsigned long long)data_bytes);
    return 0;
}

static int read_header(struct erg_safetensors *set, const char *file,
                       const struct erg_json_place *root, const unsigned char *data,
                       uint64_t data_bytes, struct erg_error *err)
{
    size_t first = set->count;
    for (void *at = json_object_iter((json_t *)(uintptr_t)root->object); at;
         at = json_object_iter_next((json_t *)(uintptr_t)root->object, at)) {
        const char *name = json_object_iter_key(at);
        if (strcmp(name, "__metadata__") == 0)
            continue;
        struct erg_json_place place = {.object = json_object_iter_value(at), .name = file};
        snprintf(place.path, sizeof place.path, "%s", name);
        struct erg_safetensor tensor = {.file = file};
        if (!json_is_object(place.object))
            return erg_fail(err, ERG_FAILED, "%s: tensor '%s': expected an object", file, name);
        if (read_tensor(&tensor, &place, data, data_bytes, err) != 0)
            return -1;
        tensor.name = erg_xstrdup(name);
        ERG_PUSH(set, items, tensor);
    }
    return check_tiles(set, first, file, data, data_bytes, err);
}

static int parse_file(struct erg_safetensors *set, const char *file, const unsigned char *bytes,
                      size_t length, struct erg_error *err)
{
    uint64_t header = 0;
    for (int i = PREFIX_BYTES - 1; i >= 0 && length >= PREFIX_BYTES; i--)
        header = header << 8 | bytes[i];
    if (length < PREFIX_BYTES || header > MOST_HEADER_BYTES || header > length - PREFIX_BYTES)
        return erg_fail(err, ERG_FAILED,
                        "%s: not a safetensors file: expected the length of a header that fits "
                        "into the file's %zu bytes",
                        file, length);
    json_t *document;
    struct erg_json_place root;
    const char *text = (const char *)bytes + PREFIX_BYTES;
    if (erg_json_open(&root, &document, file, text, (size_t)header, err) != 0)
        return -1;
    int result = read_header(set, file, &root, bytes + PREFIX_BYTES + header,
                             length - PREFIX_BYTES - header, err);
    json_decref(document);
    return result;
}

static const char *add_file(struct erg_safetensors *set, const char *name, void *bytes,
                            size_t length)
{
    struct mapped *file = erg_xcalloc(1, sizeof *file);
    *file = (struct mapped){set->files, erg_xstrdup(name), bytes, length};
    set->files = file;
    return file->name;
}

int erg_safetensors_parse(struct erg_safetensors *set, const char *name, const void *bytes,
                          size_t length, struct erg_error *err)
{
    if (parse_file(set, add_file(set, name, NULL, 0), bytes, length, err) != 0)
        return -1;
    qsort(set->items, set->count, sizeof *set->items, by_name);
    return 0;
}

static int open_file(struct erg_safetensors *set, const char *path, struct erg_error *err)
{
    void *bytes;
    size_t length;
    if (erg_file_map(path, &bytes, &length, err) != 0)
        return -1;
    if (!bytes)
        return erg_fail(err, ERG_FAILED, "reading '%s': not a safetensors file", path);
    posix_madvise(bytes, length, POSIX_MADV_SEQUENTIAL);
    add_file(set, path, bytes, length);
    return erg_safetensors_parse(set, path, bytes, length, err);
}

/* ---- several files ---- */

static bool is_open(const struct erg_safetensors *set, const char *path)
{
    for (const struct mapped *file = set->files; file; file = file->next)
        if (strcmp(file->name, path) == 0)
            return true;
    return false;
}

/* Opens an index: names of tensors and their files. */
static int open_indexed(struct erg_safetensors *set, const char *folder,
                        const struct erg_json_place *map, struct erg_error *err)
{
    json_t *object = (json_t *)(uintptr_t)map->object;
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        const char *file = json_string_value(value);
        if (!file || !*file || strchr(file, '/'))
            return erg_json_fail(map, name, err, "expected the name of a file in this folder");
        char *path = erg_file_path(folder, file);
        int result = is_open(set, path) ? 0 : open_file(set, path, err);
        free(path);
        if (result != 0)
            return -1;
    }
    qsort(set->items, set->count, sizeof *set->items, by_name);
    json_object_foreach(object, name, value)
    {
        const struct erg_safetensor *tensor = erg_safetensors_find(set, name);
        const char *file = tensor ? strrchr(tensor->file, '/') + 1 : NULL;
        if (!file || strcmp(file, json_string_value(value)) != 0)
            return erg_json_fail(map, name, err, "the tensor is not in the file '%s'",
                                 json_string_value(value));
    }
    for (size_t i = 0; i < set->count; i++)
        if (!json_object_get(object, set->items[i].name))
            return erg_fail(err, ERG_FAILED, "%s: tensor '%s' is not in the index of its folder",
                            set->items[i].file, set->items[i].name);
    return 0;
}

static int open_index(struct erg_safetensors *set, const char *folder, const char *path,
                      struct erg_error *err)
{
    char *text;
    size_t length;
    json_t *document;
    struct erg_json_place root, map;
    if (erg_file_read(path, MOST_HEADER_BYTES, &text, &length, err) != 0)
        return -1;
    int result = erg_json_open(&root, &document, path, text, length, err);
    if (result == 0) {
        result = erg_json_enter(&map, &root, "weight_map", err);
        if (result == 0)
            result = open_indexed(set, folder, &map, err);
        json_decref(document);
    }
    free(text);
    return result;
}

static int open_folder(struct erg_safetensors *set, const char *folder, struct erg_error *err)
{
    char *single = erg_file_path(folder, "model.safetensors");
    char *index = erg_file_path(folder, "model.safetensors.index.json");
    int result;
    if (access(index, F_OK) == 0)
        result = open_index(set, folder, index, err);
    else if (access(single, F_OK) == 0)
        result = open_file(set, single, err);
    else
        result = erg_fail(err, ERG_FAILED,
                          "reading '%s': the folder has neither model.safetensors nor "
                          "model.safetensors.index.json",
                          folder);
    free(single);
    free(index);
    return result;
}

int erg_safetensors_open(struct erg_safetensors *set, const char *path, struct erg_error *err)
{
    struct stat info;
    *set = (struct erg_safetensors){0};
    bool folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    if ((folder ? open_folder : open_file)(set, path, err) != 0) {
        erg_safetensors_release(set);
        return -1;
    }
    qsort(set->items, set->count, sizeof *set->items, by_name);
    for (size_t i = 1; i < set->count; i++)
        if (strcmp(set->items[i - 1].name, set->items[i].name) == 0) {
            erg_fail(err, ERG_FAILED, "%s: tensor '%s' is also in %s", set->items[i].file,
                     set->items[i].name, set->items[i - 1].file);
            erg_safetensors_release(set);
            return -1;
        }
    return 0;
}

void erg_safetensors_release(struct erg_safetensors *set)
{
    for (size_t i = 0; i < set->count; i++)
        free(set->items[i].name);
    free(set->items);
    for (struct mapped *file = set->files, *next; file; file = next) {
        next = file->next;
        if (file->bytes)
            munmap(file->bytes, file->length);
        free(file->name);
        free(file);
    }
    *set = (struct erg_safetensors){0};
}

const struct erg_safetensor *erg_safetensors_find(const struct erg_safetensors *set,
                                                  const char *name)
{
    struct erg_safetensor key = {.name = (char *)(uintptr_t)name};
    return set->count ? bsearch(&key, set->items, set->count, sizeof *set->items, by_name) : NULL;
}

/* ---- elements ---- */

static float half_float(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31;
    uint32_t fraction = half & 1023;
    if (exponent == 0) { /* zero or subnormal: in units of 2^-24 */
        float value = (float)fraction * 0x1p-24F;
        return sign ? -value : value;
    }
    uint32_t bits = sign | (exponent == 31 ? 255u : exponent + 112) << 23 | fraction << 13;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

int erg_safetensor_read(const struct erg_safetensor *tensor, uint64_t first, size_t count,
                        float *out, struct erg_error *err)
{
    if (first > tensor->count || count > tensor->count - first)
        return erg_fail(err, ERG_FAILED,
                        "%s: tensor '%s': expected at least %llu elements, got %llu", tensor->file,
                        tensor->name, (unsigned long long)first + count,
                        (unsigned long long)tensor->count);
    if (tensor->type == ERG_SAFETENSOR_F32) {
        memcpy(out, tensor->data + 4 * first, 4 * count);
        return 0;
    }
    if (tensor->type != ERG_SAFETENSOR_BF16 && tensor->type != ERG_SAFETENSOR_F16)
        return erg_fail(err, ERG_FAILED, "%s: tensor '%s' is %s, expected F32, BF16 or F16",
                        tensor->file, tensor->name, tensor->type_name);
    for (size_t i = 0; i < count; i++) {
        uint16_t bits;
        memcpy(&bits, tensor->data + 2 * (first + i), sizeof bits);
        out[i] = tensor->type == ERG_SAFETENSOR_BF16 ? erg_bf16_float(bits) : half_float(bits);
    }
    return 0;
}
