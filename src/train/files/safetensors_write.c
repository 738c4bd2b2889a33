/* Writes safetensors. */
#include "train/files/safetensors.h"

#include "base/memory.h"
#include "base/text.h"
#include "io/file.h"
#include "io/json.h"
#include "ops/bf16.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Headers are padded with spaces so that tensors are aligned. */
enum { ALIGNMENT = 8 };

static uint64_t element_bytes(const struct erg_safetensor_spec *spec)
{
    return spec->type == ERG_SAFETENSOR_F32 ? 4 : 2;
}

static uint64_t elements(const struct erg_safetensor_spec *spec)
{
    uint64_t count = 1;
    for (size_t i = 0; i < spec->dimensions; i++)
        count *= spec->shape[i];
    return count;
}

struct place {
    const struct erg_safetensor_spec *spec;
    size_t index; /* the caller's index */
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct place *)a)->spec->name, ((const struct place *)b)->spec->name);
}

static void add_header(struct erg_text *header, const struct place *places, size_t count)
{
    uint64_t offset = 0;
    erg_text_add(header, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < count; i++) {
        const struct erg_safetensor_spec *spec = places[i].spec;
        uint64_t bytes = elements(spec) * element_bytes(spec);
        erg_text_add(header, ",");
        erg_json_add_string(header, spec->name);
        erg_text_printf(header, ":{\"dtype\":\"%s\",\"shape\":[",
                        spec->type == ERG_SAFETENSOR_F32 ? "F32" : "BF16");
        for (size_t k = 0; k < spec->dimensions; k++)
            erg_text_printf(header, "%s%llu", k ? "," : "", (unsigned long long)spec->shape[k]);
        erg_text_printf(header, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)offset,
                        (unsigned long long)offset + bytes);
        offset += bytes;
    }
    erg_text_add(header, "}");
    while (header->count % ALIGNMENT)
        erg_text_add(header, " ");
}

static int write_tensor(struct erg_file_writer *file, const struct place *place,
                        int (*fill)(void *context, size_t index, float *values,
                                    struct erg_error *err),
                        void *context, struct erg_error *err)
{
    size_t count = (size_t)elements(place->spec);
    float *values = erg_xcalloc(count ? count : 1, sizeof *values);
    int result = fill(context, place->index, values, err);
    if (result == 0 && place->spec->type == ERG_SAFETENSOR_BF16) {
        erg_bf16 *rounded = (erg_bf16 *)(void *)values; /* written behind the reads */
        for (size_t i = 0; i < count; i++) {
            erg_bf16 value = erg_bf16_round(values[i]);
            memcpy(rounded + i, &value, sizeof value);
        }
    }
    if (result == 0)
        result = erg_file_append(file, values, count * (size_t)element_bytes(place->spec), err);
    free(values);
    return result;
}

int erg_safetensors_write(const char *path, const struct erg_safetensor_spec *specs, size_t count,
                          int (*fill)(void *context, size_t index, float *values,
                                      struct erg_error *err),
                          void *context, struct erg_error *err)
{
    struct erg_file_writer file;
    if (erg_file_begin(&file, path, err) != 0)
        return -1;
    struct place *places = erg_xcalloc(count ? count : 1, sizeof *places);
    for (size_t i = 0; i < count; i++) {
        assert(specs[i].type == ERG_SAFETENSOR_F32 || specs[i].type == ERG_SAFETENSOR_BF16);
        places[i] = (struct place){&specs[i], i};
    }
    qsort(places, count, sizeof *places, by_name);
    struct erg_text header = {0};
    add_header(&header, places, count);
    unsigned char prefix[8];
    for (size_t i = 0; i < sizeof prefix; i++)
        prefix[i] = (unsigned char)((uint64_t)header.count >> (8 * i));
    int result = erg_file_append(&file, prefix, sizeof prefix, err);
    if (result == 0)
        result = erg_file_append(&file, header.data, header.count, err);
    for (size_t i = 0; i < count && result == 0; i++)
        result = write_tensor(&file, &places[i], fill, context, err);
    erg_text_release(&header);
    free(places);
    if (result == 0)
        return erg_file_commit(&file, err);
    erg_file_abandon(&file);
    return -1;
}
