/* SHA-256, HMAC on top of it, and random bytes of the kernel. */
#include "launch/proof_internal.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>

enum { BLOCK_BYTES = 64, ROUNDS = 64 };

struct sha256 {
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[BLOCK_BYTES];
};

static const uint32_t round_constants[ROUNDS] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t word, int bits)
{
    return word >> bits | word << (32 - bits);
}

static void mix_block(struct sha256 *hash)
{
    uint32_t w[ROUNDS], s[8];
    for (size_t i = 0; i < 16; i++) {
        const unsigned char *at = hash->block + 4 * i;
        w[i] = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
    }
    for (int i = 16; i < ROUNDS; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + w[i - 7] +
               (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
    memcpy(s, hash->state, sizeof s);
    for (int i = 0; i < ROUNDS; i++) {
        uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
        uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        uint32_t one = s[7] + (rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25)) + choice +
                       round_constants[i] + w[i];
        uint32_t two = (rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22)) + majority;
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += one;
        s[0] = one + two;
    }
    for (int i = 0; i < 8; i++)
        hash->state[i] += s[i];
}

static void start(struct sha256 *hash)
{
    *hash = (struct sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                                      0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

static void add(struct sha256 *hash, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < count; i++) {
        hash->block[hash->bytes++ % BLOCK_BYTES] = at[i];
        if (hash->bytes % BLOCK_BYTES == 0)
            mix_block(hash);
    }
}

static void finish(struct sha256 *hash, unsigned char digest[ERG_PROOF_BYTES])
{
    static const unsigned char padding[BLOCK_BYTES] = {0x80};
    uint64_t bits = hash->bytes * 8;
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(bits >> (56 - 8 * i));
    size_t used = hash->bytes % BLOCK_BYTES;
    add(hash, padding, (used < 56 ? 56 : 56 + BLOCK_BYTES) - used);
    add(hash, length, sizeof length);
    for (int i = 0; i < ERG_PROOF_BYTES; i++)
        digest[i] = (unsigned char)(hash->state[i / 4] >> (24 - 8 * (i % 4)));
}

/* The hash of the key with each byte changed by `pad`, then of the message. */
static void hash_keyed(unsigned char digest[ERG_PROOF_BYTES], const unsigned char *key,
                       unsigned char pad, const void *message, size_t bytes)
{
    struct sha256 hash;
    unsigned char padded[BLOCK_BYTES];
    for (int i = 0; i < BLOCK_BYTES; i++)
        padded[i] = key[i] ^ pad;
    start(&hash);
    add(&hash, padded, sizeof padded);
    add(&hash, message, bytes);
    finish(&hash, digest);
}

void erg_proof_make(unsigned char proof[ERG_PROOF_BYTES], const char *key, const void *message,
                    size_t bytes)
{
    unsigned char short_key[BLOCK_BYTES] = {0}, inner[ERG_PROOF_BYTES];
    size_t length = strlen(key);
    if (length > BLOCK_BYTES) {
        struct sha256 hash;
        start(&hash);
        add(&hash, key, length);
        finish(&hash, short_key);
    } else {
        memcpy(short_key, key, length); /* NOLINT(bugprone-not-null-terminated-result): no string */
    }
    hash_keyed(inner, short_key, 0x36, message, bytes);
    hash_keyed(proof, short_key, 0x5c, inner, sizeof inner);
}

bool erg_proof_equal(const unsigned char *a, const unsigned char *b)
{
    unsigned difference = 0;
    for (int i = 0; i < ERG_PROOF_BYTES; i++)
        difference |= a[i] ^ b[i];
    return difference == 0;
}

int erg_random_bytes(void *bytes, size_t count, struct erg_error *err)
{
    unsigned char *at = bytes;
    while (count > 0) {
        ssize_t got = getrandom(at, count, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return erg_fail(err, ERG_FAILED, "the system gives no random numbers: %s",
                            strerror(errno));
        at += got;
        count -= (size_t)got;
    }
    return 0;
}
