/*
 * A tile of a product of matrices, private to the files of ops/: the sums of a few rows by a few
 * columns grow side by side in registers, each in the order of its terms. So their bits are those
 * of a plain loop.
 */
#ifndef ERG_OPS_TILE_H
#define ERG_OPS_TILE_H

#include <stddef.h>

enum { ERG_OPS_TILE_ROWS = 6, ERG_OPS_TILE_COLUMNS = 8 };

/* sums[row][column] = 0 + rows[0][row] columns[0][column] + rows[1][row] columns[1][column] + …
 * of `terms` terms. */
void erg_ops_tile(size_t terms, const float (*rows)[ERG_OPS_TILE_ROWS],
                  const float (*columns)[ERG_OPS_TILE_COLUMNS],
                  float (*sums)[ERG_OPS_TILE_COLUMNS]);

#endif
