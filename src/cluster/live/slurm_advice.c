/* Reads slurmctld's slurm.conf, and lists the settings that live jobs lack. */
#include "cluster/live/slurm_advice.h"

#include "cluster/live/host_list.h"
#include "cluster/live/slurm_command.h"
#include "cluster/live/slurm_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double patience_s = 15;

enum { EXIT_CODE = 85, KILL_WAIT_S = 120, JOB_AGE_S = 300 };

/* Returns true if a list such as "85", "80-90,99" contains a number. */
static bool has_number(const char *list, long number)
{
    for (const char *at = list; *at;) {
        char *end;
        long from = strtol(at, &end, 10), to = from;
        if (end == at)
            return false;
        if (*end == '-')
            to = strtol(end + 1, &end, 10);
        if (from <= number && number <= to)
            return true;
        at = *end == ',' ? end + 1 : end + strlen(end);
    }
    return false;
}

static void judge_number(struct erg_slurm_setting *setting, const char *value, long least,
                         const char *advice)
{
    long seconds = value ? strtol(value, NULL, 10) : -1;
    setting->fine = seconds >= least;
    if (seconds < 0)
        snprintf(setting->fact, sizeof setting->fact, "%s is not in the configuration",
                 setting->name);
    else
        snprintf(setting->fact, sizeof setting->fact, "%s is %ld s", setting->name, seconds);
    setting->advice = setting->fine ? NULL : advice;
}

/* ---- partitions ---- */

struct partition {
    const char *name;
    long tier;
    struct erg_host_list nodes;
};

struct partitions {
    struct partition *items;
    size_t count, capacity;
};

static void read_partitions(struct partitions *partitions, const char *text,
                            struct erg_arena *arena)
{
    while (*text) {
        char *line = erg_xmemdup(text, strcspn(text, "\n"));
        const char *name = erg_slurm_value(line, "PartitionName", arena);
        const char *tier = erg_slurm_value(line, "PriorityTier", arena);
        const char *nodes = erg_slurm_value(line, "Nodes", arena);
        if (name) {
            struct partition item = {name, tier ? strtol(tier, NULL, 10) : 1, {0}};
            if (nodes && strcmp(nodes, "(null)") != 0)
                erg_host_list_add(&item.nodes, nodes, NULL);
            ERG_PUSH(partitions, items, item);
        }
        text += strcspn(text, "\n");
        text += *text == '\n';
        free(line);
    }
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Returns true if they share a node. */
static bool shares(const struct partition *a, const struct partition *b)
{
    if (b->nodes.count)
        qsort(b->nodes.items, b->nodes.count, sizeof *b->nodes.items, compare_names);
    for (size_t i = 0; i < a->nodes.count && b->nodes.count; i++)
        if (bsearch(&a->nodes.items[i], b->nodes.items, b->nodes.count, sizeof *b->nodes.items,
                    compare_names))
            return true;
    return false;
}

static void judge_tier(struct erg_slurm_setting *setting, const char *text, const char *name)
{
    struct erg_arena arena = {0};
    struct partitions all = {0};
    const struct partition *ours = NULL, *rival = NULL;
    read_partitions(&all, text, &arena);
    for (size_t i = 0; i < all.count; i++)
        if (name ? strcmp(all.items[i].name, name) == 0 : !ours || all.items[i].tier > ours->tier)
            ours = &all.items[i];
    for (size_t i = 0; ours && i < all.count; i++)
        if (&all.items[i] != ours && all.items[i].tier >= ours->tier && shares(ours, &all.items[i]))
            rival = &all.items[i];
    setting->fine = ours && !rival;
    if (!ours)
        snprintf(setting->fact, sizeof setting->fact, "there is no partition %s",
                 name ? name : "at all");
    else if (rival)
        snprintf(setting->fact, sizeof setting->fact,
                 "partition %s has PriorityTier %ld, but %s, which shares nodes with it, has %ld",
                 ours->name, ours->tier, rival->name, rival->tier);
    else
        snprintf(setting->fact, sizeof setting->fact,
                 "partition %s has PriorityTier %ld, the highest on its nodes", ours->name,
                 ours->tier);
    setting->advice = setting->fine
                          ? NULL
                          : "Set a PriorityTier for the partition of live jobs that is higher than "
                            "all others on its nodes, or give it its own nodes.";
    for (size_t i = 0; i < all.count; i++)
        erg_host_list_release(&all.items[i].nodes);
    free(all.items);
    erg_arena_release(&arena);
}

/* ---- all settings ---- */

void erg_slurm_judge(const char *config, const char *partitions, const char *partition,
                     struct erg_slurm_setting settings[ERG_SLURM_SETTINGS])
{
    static const char *const names[ERG_SLURM_SETTINGS] = {
        "RequeueExitHold", "KillWait", "MinJobAge", "PriorityTier", "JobSubmitPlugins"};
    struct erg_arena arena = {0};
    for (int i = 0; i < ERG_SLURM_SETTINGS; i++)
        settings[i] = (struct erg_slurm_setting){.name = names[i]};

    struct erg_slurm_setting *setting = &settings[0];
    const char *value = erg_slurm_value(config, setting->name, &arena);
    setting->fine = value && has_number(value, EXIT_CODE);
    snprintf(setting->fact, sizeof setting->fact, "RequeueExitHold is %.100s",
             value && strcmp(value, "(null)") != 0 ? value : "not set");
    if (!setting->fine)
        setting->advice = "Set RequeueExitHold=85, so that a job that has saved is requeued and "
                          "held, except after its user's scancel.";
    judge_number(&settings[1], erg_slurm_value(config, "KillWait", &arena), KILL_WAIT_S,
                 "Set KillWait to 120 or more, the time in which a preempted job can save.");
    judge_number(&settings[2], erg_slurm_value(config, "MinJobAge", &arena), JOB_AGE_S,
                 "Set MinJobAge to 300 or more, the time in which a failed job can be requeued.");
    judge_tier(&settings[3], partitions, partition);
    setting = &settings[4];
    value = erg_slurm_value(config, setting->name, &arena);
    setting->fine = true;
    snprintf(setting->fact, sizeof setting->fact, "%s",
             value && strstr(value, "lua")
                 ? "JobSubmitPlugins contains lua, for the job_submit.lua of examples/live"
                 : "JobSubmitPlugins does not contain lua: users may change ergon's requests for "
                   "their jobs (optional)");
    erg_arena_release(&arena);
}

enum erg_engine_answer erg_slurm_advice(const char *partition,
                                        struct erg_slurm_setting settings[ERG_SLURM_SETTINGS],
                                        struct erg_error *err)
{
    static const char *const config_words[] = {"scontrol", "show", "config", NULL};
    static const char *const partition_words[] = {"scontrol", "-a",        "-o",
                                                  "show",     "partition", NULL};
    struct erg_text config = {0}, partitions = {0};
    enum erg_engine_answer answer = erg_slurm_command(config_words, patience_s, &config, err);
    if (answer == ERG_ENGINE_DONE)
        answer = erg_slurm_command(partition_words, patience_s, &partitions, err);
    if (answer == ERG_ENGINE_DONE)
        erg_slurm_judge(config.data, partitions.data, partition, settings);
    erg_text_release(&config);
    erg_text_release(&partitions);
    return answer;
}
