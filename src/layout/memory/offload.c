/* Chooses the bytes of an activation group that move to host memory. */
#include "layout/memory/memory_internal.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

/* The tensors that a layer keeps, without those too small to move. */
static void list_pieces(struct erg_memory_choice *choice, const struct erg_memory_sizes *sizes,
                        enum erg_recompute recompute, long layers,
                        enum erg_memory_accounting accounting)
{
    choice->pieces = erg_xcalloc((size_t)layers * 2 * ERG_MEMORY_ROLES, sizeof *choice->pieces);
    for (long layer = 0; layer < layers; layer++)
        for (int i = 0; i < ERG_MEMORY_ROLES; i++) {
            const struct erg_memory_tensor *tensor = &sizes->tensors[i];
            bool views = accounting == ERG_MEMORY_FRAMEWORK && !erg_recompute_activation(recompute);
            int parts = views ? tensor->views : 1;
            if (!(tensor->saved & 1u << recompute) ||
                tensor->bytes / parts < ERG_OFFLOAD_LEAST_BYTES)
                continue;
            for (int view = 0; view < parts; view++) {
                choice->pieces[choice->count++] = (struct erg_memory_piece){
                    .layer = (int)layer, .tensor = i, .view = view, .bytes = tensor->bytes / parts};
                choice->eligible += tensor->bytes / parts;
            }
        }
}

/*
 * Contiguous tensors by decreasing size, then strided views; equal ones in the order in which they
 * were saved.
 */
struct ranked_piece {
    struct erg_memory_piece piece;
    bool strided;
    size_t place;
};

static int compare_ranked(const void *a, const void *b)
{
    const struct ranked_piece *x = a, *y = b;
    if (x->strided != y->strided)
        return x->strided ? 1 : -1;
    if (x->piece.bytes != y->piece.bytes)
        return x->piece.bytes > y->piece.bytes ? -1 : 1;
    return x->place < y->place ? -1 : 1;
}

/* Above one half the order is reversed, so that no half of FC1's output stays and pins all of it.
 */
static void order_as_published(struct erg_memory_choice *choice,
                               const struct erg_memory_sizes *sizes, enum erg_recompute recompute,
                               double offload)
{
    struct ranked_piece *ranked = erg_xcalloc(choice->count + 1, sizeof *ranked);
    for (size_t i = 0; i < choice->count; i++)
        ranked[i] =
            (struct ranked_piece){.piece = choice->pieces[i],
                                  .strided = !erg_recompute_activation(recompute) &&
                                             sizes->tensors[choice->pieces[i].tensor].views > 1,
                                  .place = i};
    qsort(ranked, choice->count, sizeof *ranked, compare_ranked);
    bool reversed = offload > 0.5;
    for (size_t i = 0; i < choice->count; i++)
        choice->pieces[i] = ranked[reversed ? choice->count - 1 - i : i].piece;
    free(ranked);
}

static int64_t round_up(int64_t bytes, int64_t step)
{
    return (bytes + step - 1) / step * step;
}

/*
 * Takes pieces in order until there are enough bytes. In the arena a tensor is split between two of
 * its rows.
 */
static void choose_in_order(struct erg_memory_choice *choice, const struct erg_memory_sizes *sizes,
                            int64_t left, enum erg_memory_accounting accounting)
{
    for (size_t i = 0; i < choice->count && left > 0; i++) {
        struct erg_memory_piece *piece = &choice->pieces[i];
        int64_t row =
            accounting == ERG_MEMORY_ARENA ? piece->bytes / sizes->tensors[piece->tensor].rows : 1;
        piece->moved = left < piece->bytes ? round_up(left, row) : piece->bytes;
        if (piece->moved < piece->bytes)
            choice->split = piece;
        left -= piece->moved;
        choice->moved += piece->moved;
    }
}

/*
 * A knapsack of bytes, in which a tensor is worth more the longer it would wait unused, and one
 * tensor may be split: filling it in order of worth is optimal. The backward pass uses the tensor
 * that was saved first last, so the arena moves tensors in the order in which they were saved.
 * During a group's backward pass all its moved tensors are in a receive buffer, and the others are
 * freed one by one. At least U - moved of U bytes that are still to be used were not moved, and in
 * this order there are never more: no other choice of as many bytes, even with more split tensors,
 * needs less memory.
 */
void erg_memory_choose(struct erg_memory_choice *choice, const struct erg_memory_sizes *sizes,
                       enum erg_recompute recompute, long layers, double offload,
                       enum erg_memory_accounting accounting)
{
    *choice = (struct erg_memory_choice){0};
    list_pieces(choice, sizes, recompute, layers, accounting);
    /* A decimal ratio is not exact: 0.7 of 1200 MiB are 840, not one byte more. */
    int64_t bytes = (int64_t)ceil(offload * (double)choice->eligible * (1 - 1e-12));
    if (accounting == ERG_MEMORY_FRAMEWORK) {
        order_as_published(choice, sizes, recompute, offload);
        bytes = round_up(bytes, ERG_OFFLOAD_ROUND_BYTES);
    }
    choose_in_order(choice, sizes, bytes, accounting);
}

void erg_memory_choice_release(struct erg_memory_choice *choice)
{
    free(choice->pieces);
    *choice = (struct erg_memory_choice){0};
}

bool erg_memory_offloads(const struct erg_layout *layout, long stage)
{
    return erg_layout_offload(layout, stage) > 0 && layout->pipeline >= 3 &&
           (layout->virtual_stages > 1 || erg_memory_warmup(layout, stage) >= 2);
}

int64_t erg_memory_served_bytes(const struct erg_memory_sizes *sizes, int64_t bytes)
{
    const int64_t classes[] = {sizes->hidden,      sizes->full_hidden, sizes->kv,
                               sizes->gathered_kv, sizes->ffn,         sizes->fc1};
    if (bytes < ERG_CACHE_UNSPLIT_BYTES)
        return bytes; /* cut from a larger block */
    int64_t best = 0;
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (classes[i] >= bytes && classes[i] < bytes + ERG_CACHE_OVERSIZE_BYTES &&
            (!best || classes[i] < best))
            best = classes[i];
    return best ? best : round_up(bytes, ERG_CACHE_ROUND_BYTES);
}
