/* Which bytes of an activation group move to host memory. */
#include "layout/memory/memory_internal.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

/* What a layer keeps, tensor by tensor; what is too small to move is left out. */
static void list_pieces(struct erg_memory_choice *choice, const struct erg_memory_sizes *sizes,
                        enum erg_remat remat, long layers, enum erg_memory_accounting accounting)
{
    choice->pieces = erg_xcalloc((size_t)layers * 2 * ERG_MEMORY_ROLES, sizeof *choice->pieces);
    for (long layer = 0; layer < layers; layer++)
        for (int i = 0; i < ERG_MEMORY_ROLES; i++) {
            const struct erg_memory_tensor *tensor = &sizes->tensors[i];
            bool views = accounting == ERG_MEMORY_FRAMEWORK && !erg_remat_activation(remat);
            int parts = views ? tensor->views : 1;
            if (!(tensor->saved & 1u << remat) || tensor->bytes / parts < ERG_OFFLOAD_LEAST_BYTES)
                continue;
            for (int view = 0; view < parts; view++) {
                choice->pieces[choice->count++] = (struct erg_memory_piece){
                    .layer = (int)layer, .tensor = i, .view = view, .bytes = tensor->bytes / parts};
                choice->eligible += tensor->bytes / parts;
            }
        }
}

/* Contiguous tensors by decreasing size, then strided views; equals as they were saved. */
struct ranked {
    struct erg_memory_piece piece;
    bool strided;
    size_t place;
};

static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->strided != y->strided)
        return x->strided ? 1 : -1;
    if (x->piece.bytes != y->piece.bytes)
        return x->piece.bytes > y->piece.bytes ? -1 : 1;
    return x->place < y->place ? -1 : 1;
}

/* Above one half the order is reversed, so that no half of FC1's output stays and pins all of it.
 */
static void order_pieces(struct erg_memory_choice *choice, const struct erg_memory_sizes *sizes,
                         enum erg_remat remat, double offload,
                         enum erg_memory_accounting accounting)
{
    struct ranked *ranked = erg_xcalloc(choice->count + 1, sizeof *ranked);
    for (size_t i = 0; i < choice->count; i++)
        ranked[i] = (struct ranked){.piece = choice->pieces[i],
                                    .strided = accounting == ERG_MEMORY_FRAMEWORK &&
                                               !erg_remat_activation(remat) &&
                                               sizes->tensors[choice->pieces[i].tensor].views > 1,
                                    .place = i};
    qsort(ranked, choice->count, sizeof *ranked, compare_ranked);
    bool reversed = accounting == ERG_MEMORY_FRAMEWORK && offload > 0.5;
    for (size_t i = 0; i < choice->count; i++)
        choice->pieces[i] = ranked[reversed ? choice->count - 1 - i : i].piece;
    free(ranked);
}

static int64_t round_up(int64_t bytes, int64_t step)
{
    return (bytes + step - 1) / step * step;
}

/*
 * The arena's choice: whole tensors whose sum comes as near below `bytes` as can be, and of those
 * as few as possible; one more is split where that is not exact. Equal tensors of different layers
 * are one class, so that all counts of all classes can be tried.
 */
struct classes {
    int64_t bytes[ERG_MEMORY_ROLES];
    long most[ERG_MEMORY_ROLES], taken[ERG_MEMORY_ROLES], best[ERG_MEMORY_ROLES];
    int count;
    int64_t best_sum;
    long best_taken;
};

static void fill(struct classes *c, int at, int64_t left, int64_t sum, long taken)
{
    if (at == c->count) {
        if (sum > c->best_sum || (sum == c->best_sum && taken < c->best_taken)) {
            c->best_sum = sum;
            c->best_taken = taken;
            for (int i = 0; i < c->count; i++)
                c->best[i] = c->taken[i];
        }
        return;
    }
    int64_t fitting = left / c->bytes[at];
    long most = fitting < c->most[at] ? (long)fitting : c->most[at];
    /* The last class is best filled as far as it goes. */
    for (long k = at == c->count - 1 ? most : 0; k <= most; k++) {
        c->taken[at] = k;
        fill(c, at + 1, left - k * c->bytes[at], sum + k * c->bytes[at], taken + k);
    }
}

static void choose_whole(struct erg_memory_choice *choice, int64_t bytes)
{
    struct classes c = {.best_sum = -1};
    for (size_t i = 0; i < choice->count; i++) { /* sorted by size */
        if (!c.count || c.bytes[c.count - 1] != choice->pieces[i].bytes)
            c.bytes[c.count++] = choice->pieces[i].bytes;
        c.most[c.count - 1]++;
    }
    fill(&c, 0, bytes, 0, 0);
    int class = 0;
    for (size_t i = 0; i < choice->count; i++) {
        struct erg_memory_piece *piece = &choice->pieces[i];
        while (c.bytes[class] != piece->bytes)
            class ++;
        if (c.best[class]-- > 0)
            piece->moved = piece->bytes;
    }
    choice->moved = c.best_sum;
}

/* Splits one of the tensors that stay, the largest, between two of its rows. */
static void split_one(struct erg_memory_choice *choice, const struct erg_memory_sizes *sizes,
                      int64_t left)
{
    for (size_t i = 0; i < choice->count && left > 0; i++) {
        struct erg_memory_piece *piece = &choice->pieces[i];
        if (piece->moved)
            continue;
        piece->moved = round_up(left, piece->bytes / sizes->tensors[piece->tensor].rows);
        choice->moved += piece->moved;
        if (piece->moved < piece->bytes)
            choice->split = piece;
        return;
    }
}

/* The framework's: tensors in their order until there are enough bytes. */
static void choose_in_order(struct erg_memory_choice *choice, int64_t left)
{
    for (size_t i = 0; i < choice->count && left > 0; i++) {
        struct erg_memory_piece *piece = &choice->pieces[i];
        piece->moved = left < piece->bytes ? left : piece->bytes;
        if (piece->moved < piece->bytes)
            choice->split = piece;
        left -= piece->moved;
        choice->moved += piece->moved;
    }
}

void erg_memory_choose(struct erg_memory_choice *choice, const struct erg_memory_sizes *sizes,
                       enum erg_remat remat, long layers, double offload,
                       enum erg_memory_accounting accounting)
{
    *choice = (struct erg_memory_choice){0};
    list_pieces(choice, sizes, remat, layers, accounting);
    order_pieces(choice, sizes, remat, offload, accounting);
    /* A ratio given in decimals is not exact: 0.7 of 1200 MiB are 840, not one byte more. */
    int64_t bytes = (int64_t)ceil(offload * (double)choice->eligible * (1 - 1e-12));
    if (accounting == ERG_MEMORY_FRAMEWORK) {
        choose_in_order(choice, round_up(bytes, ERG_OFFLOAD_ROUND_BYTES));
    } else if (bytes > 0) {
        choose_whole(choice, bytes);
        split_one(choice, sizes, bytes - choice->moved);
    }
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
