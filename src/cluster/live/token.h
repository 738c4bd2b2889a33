/* Tokens identify a live job in addition to its number, since Slurm reuses numbers. */
#ifndef ERG_CLUSTER_LIVE_TOKEN_H
#define ERG_CLUSTER_LIVE_TOKEN_H

/* 64 random bits in hexadecimal. */
enum { ERG_TOKEN_LENGTH = 16 };

#endif
