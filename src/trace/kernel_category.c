/* Finds the categories of kernels by name: in the dictionary, or by the published rule. */
#define _GNU_SOURCE /* strcasestr */
#include "trace/kernel_category.h"

#include "base/memory.h"
#include "io/csv.h"
#include "io/file.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

const char *const erg_kernel_category_names[] = {"MatMul",        "SendRecv",  "AllGather",
                                                 "ReduceScatter", "AllReduce", "Memory/Elementwise",
                                                 "LayerNorm",     "Other",     NULL};
const char *const erg_kernel_sub_names[] = {"",        "attention",  "router",
                                            "permute", "optimizer",  "overlap-communication",
                                            "copy",    "all-to-all", NULL};
const char *const erg_kernel_rule_names[] = {"ergon", "charllm", NULL};

struct verdict {
    enum erg_kernel_category category;
    enum erg_kernel_sub sub;
};

struct pattern {
    char *text; /* parts, each with its NUL */
    size_t parts;
    struct verdict verdict;
};

/* A cache of names by hash: a trace has few names but millions of kernels. */
enum { REMEMBERED = 1 << 14 };
struct memory {
    uint64_t hash; /* 0: empty */
    struct verdict verdict;
};

struct erg_kernel_names {
    enum erg_kernel_rule rule;
    struct pattern *items;
    size_t count, capacity;
    struct memory *memory;
};

/* ---- the dictionary ---- */

int erg_kernel_name_index(const char *word, const char *const *names)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(word, names[i]) == 0)
            return i;
    return -1;
}

bool erg_kernel_name_communicates(const char *category)
{
    const int of = erg_kernel_name_index(category, erg_kernel_category_names);
    return of >= 0 && erg_kernel_communicates((enum erg_kernel_category)of);
}

static int fail_name(const struct erg_csv *csv, size_t row, const char *word,
                     const char *const *names, struct erg_error *err)
{
    struct erg_text list = {0};
    erg_text_add_names(&list, names);
    erg_csv_fail(csv, row, err, "'%.60s': expected one of %s", word, list.data);
    erg_text_release(&list);
    return -1;
}

/* "nccl*reduce" as "nccl\0reduce\0". */
static void cut(struct pattern *pattern, const char *text)
{
    pattern->text = erg_xstrdup(text);
    pattern->parts = 1;
    for (char *at = pattern->text; (at = strchr(at, '*')); *at++ = '\0')
        pattern->parts++;
}

static int read_rows(struct erg_kernel_names *names, const struct erg_csv *csv,
                     struct erg_error *err)
{
    size_t text, category, sub;
    if (erg_csv_require(csv, "pattern", &text, err) ||
        erg_csv_require(csv, "category", &category, err) || erg_csv_require(csv, "sub", &sub, err))
        return -1;
    for (size_t row = 0; row < erg_csv_rows(csv); row++) {
        const char *const words[] = {erg_csv_text(csv, row, text), erg_csv_text(csv, row, category),
                                     erg_csv_text(csv, row, sub)};
        const int of = erg_kernel_name_index(words[1], erg_kernel_category_names);
        const int sub_of = erg_kernel_name_index(words[2], erg_kernel_sub_names);
        struct pattern pattern = {
            .verdict = {(enum erg_kernel_category)of, (enum erg_kernel_sub)sub_of}};
        if (!*words[0])
            return erg_csv_fail(csv, row, err, "expected a pattern, a part of kernels' names");
        if (of < 0)
            return fail_name(csv, row, words[1], erg_kernel_category_names, err);
        if (sub_of < 0)
            return fail_name(csv, row, words[2], erg_kernel_sub_names + 1, err);
        cut(&pattern, words[0]);
        ERG_PUSH(names, items, pattern);
    }
    return 0;
}

int erg_kernel_names_load_file(struct erg_kernel_names **names, const char *path,
                               struct erg_error *err)
{
    struct erg_csv *csv;
    *names = NULL;
    if (erg_csv_load(&csv, path, err) != 0)
        return -1;
    *names = erg_xcalloc(1, sizeof **names);
    (*names)->memory = erg_xcalloc(REMEMBERED, sizeof *(*names)->memory);
    int result = read_rows(*names, csv, err);
    erg_csv_free(csv);
    if (result != 0) {
        erg_kernel_names_free(*names);
        *names = NULL;
    }
    return result;
}

int erg_kernel_names_load(struct erg_kernel_names **names, enum erg_kernel_rule rule,
                          struct erg_error *err)
{
    if (rule == ERG_KERNEL_RULE_CHARLLM) {
        *names = erg_xcalloc(1, sizeof **names);
        (*names)->memory = erg_xcalloc(REMEMBERED, sizeof *(*names)->memory);
        (*names)->rule = rule;
        return 0;
    }
    *names = NULL;
    char *path = erg_data_find("kernels", "categories.csv");
    if (!path)
        return erg_fail(err, ERG_FAILED,
                        "the data folder has no kernels/categories.csv with the categories of "
                        "kernels; expected it in the installed tree or in $ERGON_DATA");
    int result = erg_kernel_names_load_file(names, path, err);
    free(path);
    return result;
}

void erg_kernel_names_free(struct erg_kernel_names *names)
{
    if (!names)
        return;
    for (size_t i = 0; i < names->count; i++)
        free(names->items[i].text);
    free(names->items);
    free(names->memory);
    free(names);
}

static bool has_parts(const char *name, const struct pattern *pattern)
{
    const char *part = pattern->text, *at = name;
    for (size_t i = 0; i < pattern->parts; i++) {
        at = strcasestr(at, part);
        if (!at)
            return false;
        at += strlen(part);
        part += strlen(part) + 1;
    }
    return true;
}

static struct verdict look_up(const struct erg_kernel_names *names, const char *name)
{
    for (size_t i = 0; i < names->count; i++)
        if (has_parts(name, &names->items[i]))
            return names->items[i].verdict;
    return (struct verdict){ERG_CATEGORY_OTHER, ERG_SUB_NONE};
}

/* ---- the published rule ---- */

static bool has(const char *name, const char *part)
{
    return strcasestr(name, part) != NULL;
}

static bool has_any(const char *name, const char *const *parts)
{
    for (; *parts; parts++)
        if (has(name, *parts))
            return true;
    return false;
}

static enum erg_kernel_category published(const char *name)
{
    static const char *const sends[] = {"sendrecv", "broadcast", NULL};
    static const char *const buffers[] = {"pushsend", "pushrecv", "buffer", "userbuffer", NULL};
    static const char *const sums[] = {"sum", "add", "mul", "div", NULL};
    static const char *const products[] = {"gemm", "sdpa", "matmul", NULL};
    static const char *const passes[] = {"elementwise", "kernel", NULL};
    if (has(name, "nccl") || has(name, "communication")) {
        if (has(name, "allreduce"))
            return ERG_CATEGORY_ALL_REDUCE;
        if (has(name, "reducescatter"))
            return ERG_CATEGORY_REDUCE_SCATTER;
        if (has(name, "allgather"))
            return ERG_CATEGORY_ALL_GATHER;
        if (has_any(name, sends))
            return ERG_CATEGORY_SEND_RECV;
    }
    if (has_any(name, buffers))
        return ERG_CATEGORY_MEMORY;
    if (has(name, "triton_") && has_any(name, sums))
        return ERG_CATEGORY_MEMORY;
    if (has_any(name, products))
        return ERG_CATEGORY_MATMUL;
    if (has_any(name, passes))
        return ERG_CATEGORY_MEMORY;
    return has(name, "norm") ? ERG_CATEGORY_LAYERNORM : ERG_CATEGORY_OTHER;
}

/* ---- records ---- */

static struct verdict judge(const struct erg_kernel_names *names, const char *name)
{
    return names->rule == ERG_KERNEL_RULE_CHARLLM ? (struct verdict){published(name), ERG_SUB_NONE}
                                                  : look_up(names, name);
}

static struct verdict recall(struct erg_kernel_names *names, const char *name)
{
    const uint64_t hash = XXH3_64bits(name, strlen(name)) | 1;
    struct memory *memory = &names->memory[(hash >> 1) % REMEMBERED];
    if (memory->hash != hash)
        *memory = (struct memory){hash, judge(names, name)};
    return memory->verdict;
}

bool erg_kernel_names_apply(struct erg_kernel_names *names, struct erg_kernel_record *record)
{
    struct verdict verdict = {ERG_CATEGORY_MEMORY, ERG_SUB_COPY};
    if (record->told && names->rule == ERG_KERNEL_RULE_ERGON)
        return true;
    if (record->source != ERG_SOURCE_KERNEL && names->rule == ERG_KERNEL_RULE_CHARLLM)
        return false;
    if (record->source == ERG_SOURCE_KERNEL)
        verdict = recall(names, record->name);
    if (names->rule == ERG_KERNEL_RULE_ERGON && record->collective.name &&
        erg_kernel_communicates(verdict.category) && verdict.sub != ERG_SUB_OVERLAP) {
        const struct verdict told = recall(names, record->collective.name);
        verdict = erg_kernel_communicates(told.category) ? told : verdict;
    }
    record->category = verdict.category;
    record->sub = verdict.sub;
    return true;
}
