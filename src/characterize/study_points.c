/* Studies: resolves the combinations of a file to points and names them. */
#include "characterize/study_internal.h"

#include "base/text.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_MARKS = 100000 };

/* One combination, by the index in each list. */
struct combination {
    unsigned layout, microbatch, optimisation, overlap, recompute, layers, placement, clock, power,
        inlet, fault;
};

struct expanding {
    struct erg_study *study;
    const struct study_file *file;
    const struct erg_yaml *yaml;
    struct erg_arena *arena;
    /* The entry's own lists and those of the top level. */
    const struct study_entry *entry;
    unsigned entry_index;
    struct study_axes axes;
    const struct erg_model *model;
    bool says_sequence, says_vocabulary; /* names include them, because entries differ in nothing
                                          * else */
    size_t points_capacity, marks_capacity;
};

/* ---- layouts ---- */

/* Parses the layers of stages; *split is NULL for equal ones. */
static int split_layers(const struct expanding *at, const struct erg_layout *layout,
                        const char *text, const long **split, struct erg_error *err)
{
    const long stages = layout->pipeline, chunks = stages * layout->virtual_stages;
    const long layers = at->model->layers;
    *split = NULL;
    if (!strcmp(text, "equal"))
        return 0;
    long *list = erg_arena_alloc(at->arena, (size_t)chunks * sizeof *list);
    long sum = 0, given = 0;
    bool alike = true;
    if (!strcmp(text, "alternate+1")) {
        if (layout->virtual_stages > 1)
            return erg_fail(
                err, ERG_INFEASIBLE,
                "alternate+1 splits layers over stages, but these stages have %ld chunks each",
                layout->virtual_stages);
        for (long i = 0; i < stages; i++)
            sum += list[i] = layers / stages + (stages > 1 ? (i % 2 ? -1 : 1) : 0);
        list[stages - 1] += layers - sum;
    } else {
        for (const char *rest = text; *rest; rest += strcspn(rest, ","), rest += *rest == ',') {
            if (given < chunks)
                list[given] = strtol(rest, NULL, 10);
            given++;
        }
        if (given != chunks)
            return erg_fail(err, ERG_INFEASIBLE,
                            "the layers '%.80s' are those of %ld chunks, but this layout has %ld",
                            text, given, chunks);
    }
    for (long i = 1; i < chunks; i++)
        alike = alike && list[i] == list[0];
    if (!alike)
        *split = list;
    return 0;
}

static void set_sizes(const struct expanding *at, const struct combination *which,
                      struct erg_layout *layout)
{
    layout->microbatch = at->axes.microbatch ? at->axes.microbatch[which->microbatch] : 1;
    layout->sequence = at->axes.sequence;
}

static int make_layout(const struct expanding *at, const struct combination *which,
                       struct erg_study_point *point, struct erg_error *err)
{
    const struct erg_cluster *cluster = at->study->machine.cluster;
    struct erg_layout *layout = &point->layout;
    set_sizes(at, which, layout); /* parsing resets the microbatch */
    if (erg_layout_parse(layout, point->degrees, at->model->layers, err) != 0)
        return -1;
    set_sizes(at, which, layout);
    if (erg_layout_fill(layout, erg_cluster_gpus(cluster), point->batch, err) != 0)
        return -1;
    if (at->axes.layers &&
        split_layers(at, layout, at->axes.layers[which->layers], &layout->chunk_layers, err) != 0)
        return -1;
    if (erg_layout_check(layout, at->model, err) != 0)
        return -1;
    return 0;
}

/* "EP8 TP1 PP4", "TP8 FSDP4": degrees of 1 are left out, except tensor and, if nothing else
 * distributes layers or their weights, pipeline. */
static const char *label_of(const struct erg_study_point *point, struct erg_arena *arena)
{
    const struct erg_layout *layout = &point->layout;
    struct erg_text text = {0};
    if (point->impossible && layout->tensor < 1)
        return point->degrees;
    if (erg_layout_experts(layout) > 1)
        erg_text_printf(&text, "EP%ld ", erg_layout_experts(layout));
    erg_text_printf(&text, "TP%ld", layout->tensor);
    if (layout->context > 1)
        erg_text_printf(&text, " CP%ld", layout->context);
    if (erg_layout_is_sharded(layout))
        erg_text_printf(&text, " FSDP%ld", layout->fsdp);
    if (layout->pipeline > 1 || !erg_layout_is_sharded(layout))
        erg_text_printf(&text, " PP%ld", layout->pipeline);
    if (layout->virtual_stages > 1)
        erg_text_printf(&text, " VP%ld", layout->virtual_stages);
    char *label = erg_arena_strdup(arena, text.data);
    erg_text_release(&text);
    return label;
}

/* ---- optimisations ---- */

/* The part of an optimisation that has an effect in a layout. */
static unsigned effective_overlap(unsigned overlap, const struct erg_study_point *point)
{
    if (point->layout.tensor == 1)
        overlap &= ~(unsigned)ERG_STUDY_OVERLAP_TENSOR;
    if (point->layout.data * point->layout.context == 1)
        overlap &= ~(unsigned)ERG_STUDY_OVERLAP_GRADIENTS;
    return overlap;
}

static unsigned index_of(const char *name, const char *const *names)
{
    unsigned i = 0;
    while (names[i] && strcmp(names[i], name) != 0)
        i++;
    return i;
}

/* Sets overlap and recomputation; returns their name. */
static const char *optimise(const struct expanding *at, const struct combination *which,
                            struct erg_study_point *point)
{
    const struct study_axes *axes = &at->axes;
    if (axes->overlap || axes->recompute) {
        const char *overlap = axes->overlap ? axes->overlap[which->overlap] : "none";
        const char *recompute = axes->recompute ? axes->recompute[which->recompute] : "none";
        point->overlap = index_of(overlap, erg_study_overlap_names);
        point->layout.recompute = (enum erg_recompute)index_of(recompute, erg_recompute_names);
        /* Names that outlive the file. */
        return !axes->recompute ? erg_arena_printf(at->arena, "overlap=%s", overlap)
               : !axes->overlap
                   ? erg_arena_printf(at->arena, "recompute=%s", recompute)
                   : erg_arena_printf(at->arena, "overlap=%s+recompute=%s", overlap, recompute);
    }
    const char *name = axes->optimisations ? axes->optimisations[which->optimisation] : "base";
    const struct study_optimisation *optimisation = erg_study_optimisations;
    while (strcmp(optimisation->name, name) != 0)
        optimisation++;
    /* As published: sums of gradients overlap only with the distributed optimizer of dense
     * models. */
    if (optimisation->overlaps)
        point->overlap = ERG_STUDY_OVERLAP_TENSOR |
                         (at->model->experts.count > 0 || erg_layout_is_sharded(&point->layout)
                              ? 0
                              : ERG_STUDY_OVERLAP_GRADIENTS);
    point->layout.recompute = optimisation->recomputes ? ERG_RECOMPUTE_FULL : ERG_RECOMPUTE_NONE;
    return optimisation->name;
}

/* ---- the rest of a point ---- */

/* A clock or power equal to the GPU's own counts as not requested. */
static void ask_gpu(const struct expanding *at, const struct combination *which,
                    struct erg_study_point *point)
{
    const struct erg_gpu *gpu = at->study->machine.gpu;
    point->clock_mhz = at->axes.clocks ? at->axes.clocks[which->clock] : 0;
    point->power_w = at->axes.power_w ? at->axes.power_w[which->power] : 0;
    if (point->clock_mhz >= gpu->clock_max_mhz)
        point->clock_mhz = 0;
    if (point->power_w >= gpu->power_cap_w)
        point->power_w = 0;
}

static int add_fault(const struct expanding *at, const struct combination *which,
                     struct erg_study_point *point, struct erg_error *err)
{
    const struct study_fault *fault = at->axes.faults ? &at->axes.faults[which->fault] : NULL;
    point->fault_node = ERG_STUDY_NO_NODE;
    point->fault_clock_share = 1;
    if (!fault || fault->clock_share == 1)
        return 0;
    if (fault->node < 0 || fault->node >= at->study->machine.cluster->nodes) {
        char key[96];
        snprintf(key, sizeof key, at->entry->axes.faults ? "points[%u].faults[%u].node" : "faults",
                 at->entry_index, which->fault);
        return erg_yaml_fail(at->yaml, key, err, "expected a node from 0 to %d, got %d",
                             at->study->machine.cluster->nodes - 1, fault->node);
    }
    point->fault_node = fault->node;
    point->fault_clock_share = fault->clock_share;
    return 0;
}

static void add_lora(const struct expanding *at, struct erg_study_point *point)
{
    const struct study_lora *lora = at->axes.lora;
    struct erg_text targets = {0};
    if (!lora || lora->rank == 0)
        return;
    for (unsigned i = 0; i < lora->targets_count; i++)
        erg_text_printf(&targets, "%s%s", i ? "," : "", lora->targets[i]);
    point->lora_rank = lora->rank;
    point->lora_targets = erg_arena_strdup(at->arena, targets.count ? targets.data : "qkv");
    erg_text_release(&targets);
}

/* The last part of a path. */
static const char *called(const char *model)
{
    const char *slash = strrchr(model, '/');
    return slash && slash[1] ? slash + 1 : model;
}

static int make_point(const struct expanding *at, const struct combination *which,
                      struct erg_study_point *point, const char **optimisation,
                      struct erg_error *err)
{
    const bool heated = at->study->machine.chassis != NULL;
    struct erg_error reason;
    *point = (struct erg_study_point){
        .machine = &at->study->machine,
        .measuring = &at->study->measuring,
        .model_name = erg_arena_strdup(at->arena, called(at->entry->model)),
        .model = at->model,
        .degrees = erg_arena_strdup(at->arena, at->entry->layouts[which->layout]),
        .batch = at->file->batch,
        .inlet_c = heated && at->axes.inlet_c ? at->axes.inlet_c[which->inlet] : NAN,
    };
    if (make_layout(at, which, point, &reason) != 0)
        point->impossible = erg_arena_strdup(at->arena, reason.message);
    *optimisation = optimise(at, which, point);
    if (!point->impossible)
        point->overlap = effective_overlap(point->overlap, point);
    if (at->axes.placement && heated && point->layout.pipeline > 1)
        point->placement = (enum erg_study_placement)index_of(at->axes.placement[which->placement],
                                                              erg_study_placement_names);
    ask_gpu(at, which, point);
    add_lora(at, point);
    return add_fault(at, which, point, err);
}

/* ---- names ---- */

static void set_name(const struct expanding *at, const struct combination *which,
                     const struct erg_study_point *point, struct erg_study_mark *mark)
{
    const struct study_axes *axes = &at->axes;
    struct erg_text name = {0};
    erg_text_printf(&name, "%s/%s/b=%d/%s", point->model_name, point->degrees,
                    axes->microbatch ? axes->microbatch[which->microbatch] : 1, mark->optimisation);
    const size_t usual = name.count;
    if (at->says_sequence)
        erg_text_printf(&name, "/s=%d", axes->sequence);
    if (at->says_vocabulary)
        erg_text_printf(&name, "/v=%d", axes->vocabulary);
    if (axes->layers && strcmp(axes->layers[which->layers], "equal") != 0)
        erg_text_printf(&name, "/layers=%s", axes->layers[which->layers]);
    if (axes->placement && strcmp(axes->placement[which->placement], "given") != 0)
        erg_text_printf(&name, "/%s", axes->placement[which->placement]);
    if (axes->clocks && axes->clocks[which->clock] > 0)
        erg_text_printf(&name, "/%gMHz", axes->clocks[which->clock]);
    if (axes->power_w && axes->power_w[which->power] > 0)
        erg_text_printf(&name, "/%gW", axes->power_w[which->power]);
    if (axes->inlet_c)
        erg_text_printf(&name, "/inlet=%g", axes->inlet_c[which->inlet]);
    if (axes->faults && axes->faults[which->fault].clock_share < 1)
        erg_text_printf(&name, "/node%d=%g", axes->faults[which->fault].node,
                        axes->faults[which->fault].clock_share);
    if (axes->lora && axes->lora->rank > 0)
        erg_text_printf(&name, "/lora=%d", axes->lora->rank);
    mark->name = erg_arena_strdup(at->arena, name.data);
    mark->variant = mark->name + usual + (name.count > usual);
    erg_text_release(&name);
}

/* ---- the product ---- */

static int add_mark(struct expanding *at, const struct combination *which, struct erg_error *err)
{
    struct erg_study *study = at->study;
    struct erg_study_point point;
    struct erg_study_mark mark = {0};
    char key[64];
    snprintf(key, sizeof key, "points[%u]", at->entry_index);
    if (make_point(at, which, &point, &mark.optimisation, err) != 0)
        return -1;
    set_name(at, which, &point, &mark);
    mark.label = label_of(&point, at->arena);
    for (size_t i = 0; i < study->mark_count; i++)
        if (!strcmp(study->marks[i].name, mark.name))
            return erg_yaml_fail(at->yaml, key, err, "the point '%s' is listed twice", mark.name);
    if (study->mark_count == MOST_MARKS)
        return erg_yaml_fail(at->yaml, key, err, "expected at most %d points", MOST_MARKS);
    erg_study_set_id(study, &point);
    while (mark.point < study->point_count && strcmp(study->points[mark.point].id, point.id) != 0)
        mark.point++;
    mark.equal = mark.point < study->point_count;
    if (!mark.equal) {
        if (study->point_count == at->points_capacity) {
            at->points_capacity = erg_grow_capacity(at->points_capacity, study->point_count + 1);
            study->points = erg_xrealloc(study->points, at->points_capacity, sizeof *study->points);
        }
        study->points[study->point_count++] = point;
    }
    if (study->mark_count == at->marks_capacity) {
        at->marks_capacity = erg_grow_capacity(at->marks_capacity, study->mark_count + 1);
        study->marks = erg_xrealloc(study->marks, at->marks_capacity, sizeof *study->marks);
    }
    study->marks[study->mark_count++] = mark;
    return 0;
}

static unsigned at_least_1(unsigned count)
{
    return count ? count : 1;
}

static int add_entry(struct expanding *at, struct erg_error *err)
{
    const struct study_axes *axes = &at->axes;
    struct combination which = {0};
    const struct {
        unsigned *index, count;
    } digits[] = {
        /* The last list changes fastest. */
        {&which.fault, axes->faults_count},
        {&which.inlet, axes->inlet_c_count},
        {&which.power, axes->power_w_count},
        {&which.clock, axes->clocks_count},
        {&which.layout, at->entry->layouts_count},
        {&which.layers, axes->layers_count},
        {&which.placement, axes->placement_count},
        {&which.microbatch, axes->microbatch_count},
        {&which.recompute, axes->recompute_count},
        {&which.overlap, axes->overlap_count},
        {&which.optimisation, axes->optimisations_count},
    };
    const size_t count = sizeof digits / sizeof *digits;
    for (;;) {
        if (add_mark(at, &which, err) != 0)
            return -1;
        size_t i = count;
        while (i > 0 && ++*digits[i - 1].index == at_least_1(digits[i - 1].count))
            *digits[--i].index = 0;
        if (i == 0)
            return 0;
    }
}

/* The lists of the entry, and the top level's where it has none. */
static struct study_axes merge(const struct study_axes *own, const struct study_axes *top)
{
    struct study_axes axes = *own;
    const bool optimises = own->optimisations || own->overlap || own->recompute;
#define INHERIT(list)                                                                              \
    do {                                                                                           \
        if (!axes.list) {                                                                          \
            axes.list = top->list;                                                                 \
            axes.list##_count = top->list##_count;                                                 \
        }                                                                                          \
    } while (0)
    INHERIT(microbatch);
    INHERIT(layers);
    INHERIT(placement);
    INHERIT(clocks);
    INHERIT(power_w);
    INHERIT(inlet_c);
    INHERIT(faults);
    if (!optimises) {
        INHERIT(optimisations);
        INHERIT(overlap);
        INHERIT(recompute);
    }
#undef INHERIT
    if (!axes.sequence)
        axes.sequence = top->sequence;
    if (!axes.vocabulary)
        axes.vocabulary = top->vocabulary;
    if (!axes.lora)
        axes.lora = top->lora;
    return axes;
}

/* Returns true if another entry has the same model with another sequence or vocabulary. */
static void see_others(struct expanding *at)
{
    at->says_sequence = at->says_vocabulary = false;
    for (unsigned i = 0; i < at->file->points_count; i++) {
        const struct study_entry *other = &at->file->points[i];
        struct study_axes axes = merge(&other->axes, &at->file->axes);
        if (strcmp(other->model, at->entry->model) != 0)
            continue;
        at->says_sequence |= axes.sequence != at->axes.sequence;
        at->says_vocabulary |= axes.vocabulary != at->axes.vocabulary;
    }
}

/* Keys that need a chassis would have no effect without one. */
static int check_heat(const struct expanding *at, struct erg_error *err)
{
    const char *what = at->axes.inlet_c ? "inlet_c" : at->axes.placement ? "placement" : NULL;
    if (!what || at->study->machine.chassis)
        return 0;
    return erg_yaml_fail(at->yaml, "cluster", err,
                         "'%s' needs a chassis, but the cluster %s names none", what,
                         at->file->cluster);
}

int erg_study_expand(struct erg_study *study, const struct study_file *file,
                     const struct erg_yaml *yaml, const char *path, struct erg_error *err)
{
    struct expanding at = {.study = study, .file = file, .yaml = yaml, .arena = &study->arena};
    for (unsigned i = 0; i < file->points_count; i++) {
        at.entry = &file->points[i];
        at.entry_index = i;
        at.axes = merge(&at.entry->axes, &file->axes);
        see_others(&at);
        if (check_heat(&at, err) != 0 ||
            erg_study_model(study, &at.model, at.entry->model, at.axes.vocabulary, path, yaml, i,
                            err) != 0 ||
            add_entry(&at, err) != 0)
            return -1;
    }
    return 0;
}
