/* Power and heat over virtual time, in closed form. */
#include "device/emulated/device_internal.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int64_t before_time_ns = -10 * INT64_C(1000000000);

static double resistance_of(const struct erg_history *history)
{
    const struct erg_node_heat *node = &history->node;
    return node->limit ? node->die_k_per_w + node->sink_k_per_w
                       : history->gpu->thermal_resistance_k_per_w;
}

static double air_of(const struct erg_history *history)
{
    return history->node.limit ? history->node.air_c : history->gpu->ambient_c;
}

/*
 * With leaking static power, tau T' = ambient + R P(T) - T is still linear in T:
 * P(T) = dynamic + static + L (T - reference), so T tends to
 * (ambient + R (dynamic + static - L reference)) / (1 - R L), faster by the factor 1 - R L.
 */
double erg_history_settled(const struct erg_history *history, const struct erg_load *load)
{
    const struct erg_gpu *gpu = history->gpu;
    if (!history->heat)
        return gpu->reference_c;
    double leak_w = load->leak_per_k * load->static_w;
    double resistance = resistance_of(history);
    return (air_of(history) +
            resistance * (load->dynamic_w + load->static_w - leak_w * gpu->reference_c)) /
           (1 - resistance * leak_w);
}

static double decay(const struct erg_history_mode *mode, double elapsed_s)
{
    return -expm1(-mode->rate_per_s * elapsed_s); /* 0 at the start, 1 when settled */
}

static double elapsed(const struct erg_history_piece *piece, int64_t at_ns)
{
    return (double)(at_ns - piece->start_ns) * 1e-9;
}

static double temperature_in(const struct erg_history_piece *piece, int64_t at_ns)
{
    const struct erg_history_mode *modes = piece->modes;
    double elapsed_s = elapsed(piece, at_ns);
    return piece->temperature_c + modes[0].gain_c * decay(&modes[0], elapsed_s) +
           modes[1].gain_c * decay(&modes[1], elapsed_s);
}

static double sink_in(const struct erg_history_piece *piece, int64_t at_ns)
{
    const struct erg_history_mode *modes = piece->modes;
    double elapsed_s = elapsed(piece, at_ns);
    return piece->sink_c + modes[0].sink_c * decay(&modes[0], elapsed_s) +
           modes[1].sink_c * decay(&modes[1], elapsed_s);
}

static double energy_in(const struct erg_history_piece *piece, const struct erg_piece_gpu *share,
                        int64_t at_ns)
{
    double elapsed_s = elapsed(piece, at_ns);
    return share->energy_j + (piece->static_tail_w + share->factor * piece->dynamic_w) * elapsed_s +
           piece->modes[0].static_swing_j * decay(&piece->modes[0], elapsed_s) +
           piece->modes[1].static_swing_j * decay(&piece->modes[1], elapsed_s);
}

/* The approach to the final temperature at one rate. */
static void take_one_mode(const struct erg_history *history, struct erg_history_piece *piece,
                          double leak_w)
{
    struct erg_history_mode *mode = &piece->modes[0];
    mode->gain_c = piece->final_c - piece->temperature_c;
    if (!history->heat)
        return;
    mode->rate_per_s = (1 - resistance_of(history) * leak_w) / history->gpu->thermal_time_s;
    mode->static_swing_j = leak_w * (piece->temperature_c - piece->final_c) / mode->rate_per_s;
}

/*
 * Die x and sink y, as differences from their final temperatures: x' = a x + b y, y' = c x + d y.
 * Both are sums of two exponentials, whose rates are the eigenvalues of the matrix; the first is
 * the die's.
 */
static void take_two_modes(const struct erg_history *history, struct erg_history_piece *piece,
                           double leak_w)
{
    const struct erg_node_heat *node = &history->node;
    const double a = (leak_w - 1 / node->die_k_per_w) / node->die_j_per_k;
    const double b = 1 / (node->die_k_per_w * node->die_j_per_k);
    const double c = 1 / (node->die_k_per_w * node->sink_j_per_k);
    const double d = -c - 1 / (node->sink_k_per_w * node->sink_j_per_k);
    const double root = sqrt((a - d) * (a - d) + 4 * b * c);
    const double flow_w = (piece->final_c - node->air_c) / resistance_of(history);
    const double x = piece->temperature_c - piece->final_c;
    const double y = piece->sink_c - (node->air_c + node->sink_k_per_w * flow_w);
    struct erg_history_mode *modes = piece->modes;
    modes[0].rate_per_s = -0.5 * (a + d - root);
    modes[1].rate_per_s = -0.5 * (a + d + root);
    modes[0].gain_c =
        (a * x + b * y + modes[1].rate_per_s * x) / (modes[0].rate_per_s - modes[1].rate_per_s);
    modes[1].gain_c = -x - modes[0].gain_c;
    for (int i = 0; i < 2; i++) {
        modes[i].sink_c = modes[i].gain_c * (-modes[i].rate_per_s - a) / b;
        modes[i].static_swing_j = -leak_w * modes[i].gain_c / modes[i].rate_per_s;
    }
}

void erg_history_append(struct erg_history *history, int64_t start_ns, const struct erg_load *load,
                        const double *factors)
{
    const struct erg_gpu *gpu = history->gpu;
    if (history->count == history->capacity) {
        history->capacity = erg_grow_capacity(history->capacity, history->count + 1);
        history->pieces = erg_xrealloc(history->pieces, history->capacity, sizeof *history->pieces);
        history->shares = erg_xrealloc(history->shares, history->capacity * history->gpus,
                                       sizeof *history->shares);
    }
    struct erg_history_piece *piece = &history->pieces[history->count];
    struct erg_piece_gpu *shares = &history->shares[history->count * history->gpus];
    const struct erg_history_piece *last = history->count ? piece - 1 : NULL;
    *piece = (struct erg_history_piece){
        .start_ns = start_ns,
        .final_c = erg_history_settled(history, load),
        .dynamic_w = load->dynamic_w,
        .clock_mhz = load->clock_mhz,
        .reasons = load->reasons,
    };
    piece->temperature_c = last ? temperature_in(last, start_ns) : piece->final_c;
    piece->sink_c = last ? sink_in(last, start_ns) : history->node.soaked_sink_c;
    double leak_w = load->leak_per_k * load->static_w;
    piece->static_tail_w = load->static_w + leak_w * (piece->final_c - gpu->reference_c);
    if (!history->heat || !history->node.limit)
        take_one_mode(history, piece, leak_w);
    else if (last)
        take_two_modes(history, piece, leak_w);
    else /* training has just stopped: nothing cools before work begins */
        piece->temperature_c = history->node.soaked_die_c;
    for (size_t g = 0; g < history->gpus; g++) {
        shares[g].energy_j = last ? energy_in(last, &shares[g] - history->gpus, start_ns) : 0;
        shares[g].factor = factors ? factors[g] : 1;
    }
    history->count++;
}

void erg_history_truncate(struct erg_history *history, int64_t start_ns)
{
    while (history->count > 1 && history->pieces[history->count - 1].start_ns >= start_ns)
        history->count--;
}

void erg_history_forget(struct erg_history *history, int64_t until_ns)
{
    size_t gone = erg_history_find(history, until_ns);
    size_t left = history->count - gone;
    memmove(history->pieces, history->pieces + gone, left * sizeof *history->pieces);
    memmove(history->shares, history->shares + gone * history->gpus,
            left * history->gpus * sizeof *history->shares);
    history->count = left;
}

void erg_history_begin(struct erg_history *history)
{
    const struct erg_load idle = {.static_w = history->gpu->idle_power_w,
                                  .clock_mhz = history->gpu->clock_min_mhz,
                                  .reasons = ERG_REASON_IDLE};
    history->count = 0;
    erg_history_append(history, before_time_ns, &idle, NULL);
}

void erg_history_release(struct erg_history *history)
{
    free(history->pieces);
    free(history->shares);
    *history = (struct erg_history){0};
}

size_t erg_history_find(const struct erg_history *history, int64_t at_ns)
{
    size_t i = history->count - 1; /* requested times are nearly always recent */
    while (i > 0 && history->pieces[i].start_ns > at_ns)
        i--;
    return i;
}

double erg_history_temperature(const struct erg_history *history, int64_t at_ns)
{
    return temperature_in(&history->pieces[erg_history_find(history, at_ns)], at_ns);
}

double erg_history_sink(const struct erg_history *history, int64_t at_ns)
{
    return sink_in(&history->pieces[erg_history_find(history, at_ns)], at_ns);
}

double erg_history_energy(const struct erg_history *history, size_t gpu, int64_t at_ns)
{
    size_t i = erg_history_find(history, at_ns);
    return energy_in(&history->pieces[i], &history->shares[i * history->gpus + gpu], at_ns);
}
