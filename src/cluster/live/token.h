/* Tokens: what a live job is known by, beside its number, which is given again. */
#ifndef ERG_CLUSTER_LIVE_TOKEN_H
#define ERG_CLUSTER_LIVE_TOKEN_H

/* 64 random bits, hexadecimal. */
enum { ERG_TOKEN_LENGTH = 16 };

#endif
