/*
 * Numbers: the tensors after a pass through a decoder's layers, copied to the host, and the
 * difference between two passes.
 */
#ifndef ERG_CUDA_NUMBERS_H
#define ERG_CUDA_NUMBERS_H

#include "device/cuda/decoder.h"
#include "device/device.h"

struct erg_numbers;

/* Copies output, input gradient and all weight gradients of the layers. Waits for the stream. */
int erg_numbers_new(struct erg_numbers **numbers, const struct erg_decoder *decoder,
                    struct CUstream_st *stream, struct erg_error *err);
void erg_numbers_free(struct erg_numbers *numbers);

/*
 * Compares two passes through one decoder. `list` gets one entry per tensor, over all layers;
 * returns their number.
 */
size_t erg_numbers_compare(const struct erg_numbers *numbers, const struct erg_numbers *reference,
                           struct erg_difference list[ERG_DIFFERENCES]);

#endif
