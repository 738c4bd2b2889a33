/*
 * Random numbers: always passed, never global, so that equal seeds give equal runs.
 *
 * erg_rng is a stream (xoshiro256**, Blackman & Vigna 2018, seeded by SplitMix64). erg_hash_* make
 * counter-based draws: a pure function of its key, independent of the order of calls.
 */
#ifndef ERG_BASE_RANDOM_H
#define ERG_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

struct erg_rng {
    uint64_t state[4];
};

void erg_rng_seed(struct erg_rng *rng, uint64_t seed);
uint64_t erg_rng_next(struct erg_rng *rng);
double erg_rng_uniform(struct erg_rng *rng);             /* [0, 1) */
size_t erg_rng_below(struct erg_rng *rng, size_t limit); /* [0, limit), unbiased; limit > 0 */
double erg_rng_normal(struct erg_rng *rng);              /* N(0, 1) */
void erg_rng_shuffle(struct erg_rng *rng, size_t *items, size_t count);

uint64_t erg_hash_u64(uint64_t a, uint64_t b); /* mixes two words into one */
uint64_t erg_hash_text(const char *text);      /* FNV-1a, then mixed */
/* Number `index`, from 0, of the stream that SplitMix64 gives from `key`. */
uint64_t erg_hash_at(uint64_t key, uint64_t index);
double erg_hash_uniform(uint64_t key); /* (0, 1) */
double erg_hash_normal(uint64_t key);  /* N(0, 1) */

#endif
