/*
 * Initialisation: every element of a weight is a function of (seed, name of its tensor, index in
 * it), so it is the same in every layout, and has the same bits in C, CUDA and NumPy.
 *
 * Element i of a tensor: key = erg_hash_u64(seed, erg_hash_text(name)); the twelve 16-bit quarters
 * of outputs 3i, 3i + 1, 3i + 2 of SplitMix64 from the state `key` add up to s; the value is mean +
 * deviation (s - 393210) / 65536, rounded once. This is close to normal: within 6 deviations, with
 * variance 1 - 2e-10.
 *
 * Matrices have the deviation of the model's config, default: 0.02, and proj and fc2 that over
 * sqrt(2 layers); weights of norms are 1, biases 0.
 */
#ifndef ERG_TRAIN_ENGINE_INITIALIZE_H
#define ERG_TRAIN_ENGINE_INITIALIZE_H

#include "decoder/decoder_weights.h"

#include <stdint.h>

/* Fills this rank's state [weights->state], on all cores; padding is 0. */
int erg_initialize(float *state, const struct erg_weights *weights,
                   const struct erg_weight_spans *spans, const struct erg_model *model,
                   uint64_t seed, struct erg_error *err);

#endif
