/* Ranks: their places, and their groups. */
#include "train/engine/ranks.h"

#include "base/memory.h"

#include <stdlib.h>

/* Working state to make a run's groups, one kind after the other. */
struct group_maker {
    struct erg_ranks *ranks;
    const struct erg_layout *layout;
    struct erg_backend *backend;
    int *members;
};

static int rank_at(const struct erg_layout *layout, long tensor, long context, long data,
                   long stage)
{
    return (int)(tensor +
                 layout->tensor * (context + layout->context * (data + layout->data * stage)));
}

/* Makes a group of the members [count]; none for a single member. */
static int make(struct group_maker *maker, struct erg_group **group, size_t count,
                struct erg_error *err)
{
    return maker->backend->table->group_new(maker->backend, group, maker->members,
                                            count > 1 ? count : 0, err);
}

/* Makes a group of tensor ranks from the one at `first`. */
static int make_tensor(struct group_maker *maker, struct erg_group **group, long first, long count,
                       struct erg_error *err)
{
    const struct erg_ranks *own = maker->ranks;
    for (long i = 0; i < count; i++)
        maker->members[i] = rank_at(maker->layout, first + i, own->context, own->data, own->stage);
    return make(maker, group, (size_t)count, err);
}

static int make_context(struct group_maker *maker, struct erg_error *err)
{
    const struct erg_ranks *own = maker->ranks;
    for (long i = 0; i < maker->layout->context; i++)
        maker->members[i] = rank_at(maker->layout, own->tensor, i, own->data, own->stage);
    return make(maker, &maker->ranks->groups.context, (size_t)maker->layout->context, err);
}

static int make_zero(struct group_maker *maker, struct erg_error *err)
{
    const struct erg_ranks *own = maker->ranks;
    long count = maker->layout->context * maker->layout->data;
    for (long i = 0; i < count; i++)
        maker->members[i] = rank_at(maker->layout, own->tensor, i, 0, own->stage);
    return make(maker, &maker->ranks->groups.zero, (size_t)count, err);
}

/* Makes a pair of stages, if this rank's stage is one of them. */
static int make_pair(struct group_maker *maker, struct erg_group **group, long a, long b,
                     struct erg_error *err)
{
    const struct erg_ranks *own = maker->ranks;
    bool in = own->stage == a || own->stage == b;
    struct erg_group *none;
    maker->members[0] = rank_at(maker->layout, own->tensor, own->context, own->data, a < b ? a : b);
    maker->members[1] = rank_at(maker->layout, own->tensor, own->context, own->data, a < b ? b : a);
    return make(maker, in ? group : &none, in ? 2 : 0, err);
}

static int make_neighbours(struct group_maker *maker, struct erg_error *err)
{
    struct erg_rank_groups *groups = &maker->ranks->groups;
    long stages = maker->layout->pipeline, own = maker->ranks->stage;
    bool wraps = maker->layout->virtual_stages > 1;
    for (long from = 0; stages > 1 && from < stages - !wraps; from++) {
        long to = (from + 1) % stages;
        if (make_pair(maker, own == from ? &groups->forward_to : &groups->forward_from, from, to,
                      err) ||
            make_pair(maker, own == from ? &groups->backward_from : &groups->backward_to, from, to,
                      err))
            return -1;
    }
    return 0;
}

static int make_all(struct group_maker *maker, const struct erg_model *model, struct erg_error *err)
{
    struct erg_rank_groups *groups = &maker->ranks->groups;
    const struct erg_layout *layout = maker->layout;
    long t = layout->tensor, alike = t > model->kv_heads ? t / model->kv_heads : 1;
    bool tied = model->tied && layout->pipeline > 1;
    return make_tensor(maker, &groups->tensor, 0, t, err) ||
                   make_tensor(maker, &groups->vectors, 0, t, err) ||
                   make_tensor(maker, &groups->keys, maker->ranks->tensor / alike * alike, alike,
                               err) ||
                   make_context(maker, err) || make_zero(maker, err) ||
                   (tied && make_pair(maker, &groups->tied, 0, layout->pipeline - 1, err)) ||
                   make_neighbours(maker, err)
               ? -1
               : 0;
}

void erg_ranks_place(struct erg_ranks *ranks, const struct erg_layout *layout, int rank)
{
    long place = rank;
    *ranks = (struct erg_ranks){.rank = rank, .world = (int)erg_layout_gpus(layout)};
    ranks->tensor = place % layout->tensor;
    place /= layout->tensor;
    ranks->context = place % layout->context;
    place /= layout->context;
    ranks->data = place % layout->data;
    ranks->stage = place / layout->data;
}

int erg_ranks_open(struct erg_ranks *ranks, const struct erg_layout *layout,
                   const struct erg_model *model, struct erg_backend *backend, int rank,
                   struct erg_error *err)
{
    erg_ranks_place(ranks, layout, rank);
    struct group_maker maker = {ranks, layout, backend,
                                erg_xcalloc((size_t)ranks->world + 1, sizeof *maker.members)};
    int result = ranks->world > 1 ? make_all(&maker, model, err) : 0;
    free(maker.members);
    return result;
}

void erg_ranks_release(struct erg_ranks *ranks, struct erg_backend *backend)
{
    struct erg_rank_groups *groups = &ranks->groups;
    struct erg_group *const all[] = {
        groups->tensor,        groups->vectors,    groups->keys,         groups->context,
        groups->zero,          groups->tied,       groups->forward_from, groups->forward_to,
        groups->backward_from, groups->backward_to};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i])
            backend->table->group_free(backend, all[i]);
    *ranks = (struct erg_ranks){0};
}
