/*
 * Learning rates, as functions of the number of updates made before. They have no state in a
 * checkpoint.
 *
 * With W updates of warm-up, U in all, u made before this one, and r = (u - W) / (U - W):
 *     u < W      highest (u + 1) / W, or with warmup_from_zero highest u / W
 *     cosine     lowest + (1 + cos(pi r)) / 2 (highest - lowest)
 *     linear     lowest + (1 - r) (highest - lowest)
 *     constant   highest
 *     wsd        highest until u = U - Z; then with q = (u - (U - Z)) / Z lowest + f(q) (highest -
 *                lowest), where f is 1 - q, or 1 - sqrt(q)
 *     u >= U     lowest
 */
#ifndef ERG_TRAIN_ENGINE_RATE_H
#define ERG_TRAIN_ENGINE_RATE_H

#include "job/training.h"

#include <stdbool.h>
#include <stdint.h>

struct erg_learning_rate {
    enum erg_rate_schedule schedule;
    double highest, lowest;
    uint64_t warmup, updates, decay; /* W, U, Z; Z for the WSD schedules only */
    bool warmup_from_zero;
};

double erg_rate_at(const struct erg_learning_rate *rate, uint64_t updates_before);

#endif
