/* Random numbers: a seeded stream (xoshiro256**), and draws that depend on a key alone. */
#include "base/random.h"

#include <math.h>

static uint64_t splitmix(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

static uint64_t rotate(uint64_t word, int bits)
{
    return (word << bits) | (word >> (64 - bits));
}

void erg_rng_seed(struct erg_rng *rng, uint64_t seed)
{
    for (int i = 0; i < 4; i++)
        rng->state[i] = splitmix(&seed);
}

uint64_t erg_rng_next(struct erg_rng *rng)
{
    uint64_t *s = rng->state;
    uint64_t result = rotate(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return result;
}

double erg_rng_uniform(struct erg_rng *rng)
{
    return (double)(erg_rng_next(rng) >> 11) * 0x1.0p-53;
}

size_t erg_rng_below(struct erg_rng *rng, size_t limit)
{
    for (;;) {
        uint64_t word = erg_rng_next(rng), rest = word % limit;
        if (word - rest <= -(uint64_t)limit) /* else it is of the last, incomplete round */
            return (size_t)rest;
    }
}

/* Box-Muller; the second value is dropped so that the stream has no hidden state. */
static double normal_from(double u, double v)
{
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

double erg_rng_normal(struct erg_rng *rng)
{
    double u = 1.0 - erg_rng_uniform(rng);
    return normal_from(u, erg_rng_uniform(rng));
}

void erg_rng_shuffle(struct erg_rng *rng, size_t *items, size_t count)
{
    for (size_t i = count; i > 1; i--) {
        size_t j = erg_rng_below(rng, i);
        size_t swapped = items[i - 1];
        items[i - 1] = items[j];
        items[j] = swapped;
    }
}

uint64_t erg_hash_u64(uint64_t a, uint64_t b)
{
    uint64_t state = a ^ rotate(b * 0xd6e8feb86659fd93ULL, 32);
    state = splitmix(&state);
    state ^= b;
    return splitmix(&state);
}

uint64_t erg_hash_text(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325ULL;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3ULL;
    return splitmix(&hash);
}

uint64_t erg_hash_at(uint64_t key, uint64_t index)
{
    key += index * 0x9e3779b97f4a7c15ULL;
    return splitmix(&key);
}

double erg_hash_uniform(uint64_t key)
{
    return ((double)(splitmix(&key) >> 12) + 0.5) * 0x1.0p-52;
}

double erg_hash_normal(uint64_t key)
{
    return normal_from(erg_hash_uniform(key), erg_hash_uniform(erg_hash_u64(key, 1)));
}
