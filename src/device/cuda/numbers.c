/* Numbers: copies the tensors of a decoder's pass to the host, and compares two passes. */
#include "device/cuda/numbers.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One tensor, from all layers that have it. */
struct tensor {
    const char *name;
    bool bf16;
    size_t count;
    struct {
        void **items;
        size_t count, capacity;
    } copies;
};

struct erg_numbers {
    struct tensor tensors[ERG_DIFFERENCES];
    size_t count;
};

static int download(struct tensor *tensor, const void *memory, struct CUstream_st *stream,
                    struct erg_error *err)
{
    size_t bytes = tensor->count * (tensor->bf16 ? sizeof(erg_bf16) : sizeof(float));
    void *copy = erg_xmalloc(bytes);
    ERG_PUSH(&tensor->copies, items, copy);
    return erg_cuda_copy(copy, memory, bytes, stream, err) || erg_cuda_stream_sync(stream, err) ? -1
                                                                                                : 0;
}

static int note_end(struct erg_numbers *numbers, const char *name, const erg_bf16 *memory,
                    size_t count, struct CUstream_st *stream, struct erg_error *err)
{
    struct tensor *tensor = &numbers->tensors[numbers->count++];
    *tensor = (struct tensor){.name = name, .bf16 = true, .count = count};
    return download(tensor, memory, stream, err);
}

static int note_gradients(struct erg_numbers *numbers, const struct erg_decoder *decoder,
                          enum erg_decoder_weight weight, struct CUstream_st *stream,
                          struct erg_error *err)
{
    size_t layers = (size_t)erg_decoder_layers(decoder);
    struct erg_decoder_tensor first = erg_decoder_tensor(decoder, 0, weight);
    if (!first.count)
        return 0;
    struct tensor *tensor = &numbers->tensors[numbers->count++];
    *tensor = (struct tensor){.name = first.name, .count = first.count};
    for (size_t layer = 0; layer < layers; layer++)
        if (download(tensor, erg_decoder_tensor(decoder, layer, weight).gradient, stream, err))
            return -1;
    return 0;
}

int erg_numbers_new(struct erg_numbers **out, const struct erg_decoder *decoder,
                    struct CUstream_st *stream, struct erg_error *err)
{
    struct erg_numbers *numbers = erg_xcalloc(1, sizeof *numbers);
    struct erg_decoder_ends ends = erg_decoder_ends(decoder);
    size_t count = ends.tokens * ends.hidden;
    int status = note_end(numbers, "output", ends.output, count, stream, err) ||
                         note_end(numbers, "input", ends.input_gradient, count, stream, err)
                     ? -1
                     : 0;
    for (int weight = 0; !status && weight < ERG_WEIGHTS; weight++)
        status = note_gradients(numbers, decoder, (enum erg_decoder_weight)weight, stream, err);
    if (status) {
        erg_numbers_free(numbers);
        return -1;
    }
    *out = numbers;
    return 0;
}

void erg_numbers_free(struct erg_numbers *numbers)
{
    if (!numbers)
        return;
    for (size_t i = 0; i < numbers->count; i++) {
        for (size_t k = 0; k < numbers->tensors[i].copies.count; k++)
            free(numbers->tensors[i].copies.items[k]);
        free(numbers->tensors[i].copies.items);
    }
    free(numbers);
}

static double value_at(const struct tensor *tensor, size_t copy, size_t i)
{
    const void *values = tensor->copies.items[copy];
    return tensor->bf16 ? erg_bf16_float(((const erg_bf16 *)values)[i])
                        : ((const float *)values)[i];
}

static void compare_copy(const struct tensor *a, const struct tensor *b, size_t copy,
                         struct erg_difference *difference)
{
    size_t bytes = a->count * (a->bf16 ? sizeof(erg_bf16) : sizeof(float));
    double apart = 0, norm = 0;
    for (size_t i = 0; i < a->count; i++) {
        double x = value_at(a, copy, i), y = value_at(b, copy, i);
        apart += (x - y) * (x - y);
        norm += y * y;
    }
    double relative = sqrt(apart / norm);
    difference->copies++;
    difference->identical += !memcmp(a->copies.items[copy], b->copies.items[copy], bytes);
    if (!(relative <= difference->relative)) /* NaN, too */
        difference->relative = relative;
}

size_t erg_numbers_compare(const struct erg_numbers *numbers, const struct erg_numbers *reference,
                           struct erg_difference list[ERG_DIFFERENCES])
{
    for (size_t i = 0; i < numbers->count; i++) {
        const struct tensor *tensor = &numbers->tensors[i];
        list[i] = (struct erg_difference){0};
        snprintf(list[i].tensor, sizeof list[i].tensor, "%s", tensor->name);
        for (size_t copy = 0; copy < tensor->copies.count; copy++)
            compare_copy(tensor, &reference->tensors[i], copy, &list[i]);
    }
    return numbers->count;
}
