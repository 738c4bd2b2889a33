/*
 * Expected hypervolume improvement in two objectives, exact for independent normals.
 *
 * Against a staircase of k points (time up, energy down) within the reference (r_t, r_e), the
 * plane splits into k + 1 vertical strips [x_i, x_i+1] with ceiling u_i; the improvement of a
 * point (t, e) is sum_i max(0, x_i+1 - max(x_i, t)) max(0, u_i - e), and with
 * psi(c; m, s) = E max(0, c - N(m, s^2)) its expectation is
 * sum_i [psi(x_i+1; t) - psi(x_i; t)] psi(u_i; e).
 */
#ifndef ERG_SEARCH_EHVI_INTERNAL_H
#define ERG_SEARCH_EHVI_INTERNAL_H

#include "ergon/frontier.h"

struct erg_reference {
    double time_s, energy_j;
};

/* Worst point of a filtered, non-empty front plus `margin` times its range, per objective. */
struct erg_reference erg_reference_of(const struct erg_frontier *front, double margin);

/* `front` filtered. Standard deviations may be 0: then it is the plain improvement. */
double erg_ehvi(const struct erg_frontier *front, struct erg_reference reference, double time_s,
                double time_sd_s, double energy_j, double energy_sd_j);

#endif
