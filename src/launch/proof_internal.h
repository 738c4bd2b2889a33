/*
 * Proof: two processes prove to each other that they share a secret without sending it: HMAC with
 * SHA-256 (RFC 2104, FIPS 180-4). It is implemented here because no library that ergon links has
 * it, and the programs for machines with GPUs ship without libraries.
 */
#ifndef ERG_LAUNCH_PROOF_INTERNAL_H
#define ERG_LAUNCH_PROOF_INTERNAL_H

#include "ergon/error.h"

#include <stdbool.h>
#include <stddef.h>

enum { ERG_PROOF_BYTES = 32 };

/* The proof of a message under a key, which is text. */
void erg_proof_make(unsigned char proof[ERG_PROOF_BYTES], const char *key, const void *message,
                    size_t bytes);

/* In a time that does not depend on where they differ. */
bool erg_proof_equal(const unsigned char *a, const unsigned char *b);

/* Cryptographically secure random bytes from the kernel. */
int erg_random_bytes(void *bytes, size_t count, struct erg_error *err);

#endif
