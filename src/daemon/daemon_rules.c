/* Reads the daemon's file: rules and settings. */
#include "daemon/daemon_rules.h"

#include "base/memory.h"
#include "base/text.h"
#include "io/file.h"
#include "io/yaml.h"
#include "telemetry/gpu_bits.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define OPTIONAL CYAML_FLAG_OPTIONAL
#define OPTIONAL_WORD (CYAML_FLAG_OPTIONAL | CYAML_FLAG_STRICT)
#define OPTIONAL_TEXT (CYAML_FLAG_OPTIONAL | CYAML_FLAG_POINTER)

struct rule_file {
    char *user, *group, *slurm, *gpus;
    int *may;
    unsigned may_count, clock_mhz_count, power_w_count;
    double *clock_mhz, *power_w;
};

struct telemetry_part {
    int who, period_ms;
};
struct standing_part {
    char *power_w, *clock_mhz;
    int persistence;
};
struct lease_part {
    double ttl_s, longest_h;
};
struct rate_part {
    double changes_per_s, node_changes_per_s;
    int burst;
};
struct audit_part {
    char *file;
    int detail;
};
struct config_file {
    struct rule_file *rules;
    unsigned rules_count;
    struct telemetry_part telemetry;
    struct standing_part standing;
    struct lease_part lease;
    struct rate_part rate;
    struct audit_part audit;
};

static const cyaml_strval_t knob_names[] = {
    {"clock", ERG_KNOB_CLOCK}, {"power", ERG_KNOB_POWER}, {"memory", ERG_KNOB_MEMORY}};
static const cyaml_strval_t who_names[] = {{"everyone", 0}, {"members", 1}};
static const cyaml_strval_t persistence_names[] = {{"keep", 0}, {"on", 1}};
static const cyaml_strval_t detail_names[] = {{"lease", 0}, {"every", 1}};

static const cyaml_schema_value_t knob = {
    CYAML_VALUE_ENUM(CYAML_FLAG_STRICT, int, knob_names, COUNT(knob_names))};
static const cyaml_schema_value_t number = {CYAML_VALUE_FLOAT(CYAML_FLAG_DEFAULT, double)};

#define RULE struct rule_file
static const cyaml_schema_field_t rule_fields[] = {
    CYAML_FIELD_STRING_PTR("user", OPTIONAL_TEXT, RULE, user, 1, 200),
    CYAML_FIELD_STRING_PTR("group", OPTIONAL_TEXT, RULE, group, 1, 200),
    CYAML_FIELD_STRING_PTR("slurm", OPTIONAL_TEXT, RULE, slurm, 1, 200),
    CYAML_FIELD_SEQUENCE("may", CYAML_FLAG_POINTER, RULE, may, &knob, 1, ERG_KNOBS - 1),
    CYAML_FIELD_STRING_PTR("gpus", CYAML_FLAG_POINTER, RULE, gpus, 1, 4000),
    CYAML_FIELD_SEQUENCE("clock_mhz", OPTIONAL_TEXT, RULE, clock_mhz, &number, 2, 2),
    CYAML_FIELD_SEQUENCE("power_w", OPTIONAL_TEXT, RULE, power_w, &number, 2, 2),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t rule_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct rule_file, rule_fields)};

static const cyaml_schema_field_t telemetry_fields[] = {
    CYAML_FIELD_ENUM("who", OPTIONAL_WORD, struct telemetry_part, who, who_names, COUNT(who_names)),
    CYAML_FIELD_INT("period_ms", OPTIONAL, struct telemetry_part, period_ms),
    CYAML_FIELD_END,
};
static const cyaml_schema_field_t standing_fields[] = {
    CYAML_FIELD_STRING_PTR("power_w", OPTIONAL_TEXT, struct standing_part, power_w, 1, 40),
    CYAML_FIELD_STRING_PTR("clock_mhz", OPTIONAL_TEXT, struct standing_part, clock_mhz, 1, 40),
    CYAML_FIELD_ENUM("persistence", OPTIONAL_WORD, struct standing_part, persistence,
                     persistence_names, COUNT(persistence_names)),
    CYAML_FIELD_END,
};
static const cyaml_schema_field_t lease_fields[] = {
    CYAML_FIELD_FLOAT("ttl_s", OPTIONAL, struct lease_part, ttl_s),
    CYAML_FIELD_FLOAT("longest_h", OPTIONAL, struct lease_part, longest_h),
    CYAML_FIELD_END,
};
static const cyaml_schema_field_t rate_fields[] = {
    CYAML_FIELD_FLOAT("changes_per_s", OPTIONAL, struct rate_part, changes_per_s),
    CYAML_FIELD_FLOAT("node_changes_per_s", OPTIONAL, struct rate_part, node_changes_per_s),
    CYAML_FIELD_INT("burst", OPTIONAL, struct rate_part, burst),
    CYAML_FIELD_END,
};
static const cyaml_schema_field_t audit_fields[] = {
    CYAML_FIELD_STRING_PTR("file", OPTIONAL_TEXT, struct audit_part, file, 1, 4000),
    CYAML_FIELD_ENUM("detail", OPTIONAL_WORD, struct audit_part, detail, detail_names,
                     COUNT(detail_names)),
    CYAML_FIELD_END,
};
#define WHOLE struct config_file
static const cyaml_schema_field_t config_fields[] = {
    CYAML_FIELD_SEQUENCE("rules", OPTIONAL_TEXT, WHOLE, rules, &rule_schema, 0, 1000),
    CYAML_FIELD_MAPPING("telemetry", OPTIONAL, WHOLE, telemetry, telemetry_fields),
    CYAML_FIELD_MAPPING("standing", OPTIONAL, WHOLE, standing, standing_fields),
    CYAML_FIELD_MAPPING("lease", OPTIONAL, WHOLE, lease, lease_fields),
    CYAML_FIELD_MAPPING("rate", OPTIONAL, WHOLE, rate, rate_fields),
    CYAML_FIELD_MAPPING("audit", OPTIONAL, WHOLE, audit, audit_fields),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t config_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct config_file, config_fields)};

/* ---- rules ---- */

/* The user or group of a rule. An unknown name is an error, since another account may get it
 * later. */
static int take_who(struct erg_daemon_rule *rule, const struct rule_file *file,
                    const struct erg_yaml *yaml, const char *key, struct erg_error *err)
{
    const char *name = file->user ? file->user : file->group;
    long id = -1;
    if (!file->user + !file->group + !file->slurm != 2)
        return erg_yaml_fail(yaml, key, err, "expected one of the keys user, group and slurm");
    if (file->slurm) {
        rule->who = ERG_WHO_JOB;
        return strcmp(file->slurm, "granted") == 0
                   ? 0
                   : erg_yaml_fail(yaml, key, err, "slurm: expected \"granted\", got \"%s\"",
                                   file->slurm);
    }
    rule->who = file->user ? ERG_WHO_USER : ERG_WHO_GROUP;
    if (!erg_parse_long(name, &id)) {
        const struct passwd *user = file->user ? getpwnam(name) : NULL;
        const struct group *group = file->user ? NULL : getgrnam(name);
        id = user ? (long)user->pw_uid : group ? (long)group->gr_gid : -1;
    }
    rule->id = (uint32_t)id;
    return id >= 0 && id < UINT32_MAX
               ? 0
               : erg_yaml_fail(yaml, key, err,
                               "'%s' does not exist here, expected a %s of this machine", name,
                               file->user ? "user" : "group");
}

static int take_bounds(struct erg_daemon_rule *rule, enum erg_knob at, const double *values,
                       double unit, const struct erg_yaml *yaml, const char *key,
                       struct erg_error *err)
{
    rule->least[at] = 0;
    rule->most[at] = INT64_MAX;
    if (!values)
        return 0;
    if (!(values[0] >= 0 && values[0] <= values[1] && values[1] <= 1e6))
        return erg_yaml_fail(yaml, key, err,
                             "bounds of the %s: expected two numbers, the lower one first",
                             erg_knob_name(at));
    rule->least[at] = (int64_t)(values[0] * unit);
    rule->most[at] = (int64_t)(values[1] * unit);
    return 0;
}

static int take_rule(struct erg_daemon_rule *rule, const struct rule_file *file, size_t i,
                     const struct erg_gpus *gpus, const struct erg_yaml *yaml,
                     struct erg_error *err)
{
    char key[40];
    struct erg_error gpu;
    snprintf(key, sizeof key, "rules[%zu]", i);
    if (take_who(rule, file, yaml, key, err) ||
        take_bounds(rule, ERG_KNOB_CLOCK, file->clock_mhz, 1, yaml, key, err) ||
        take_bounds(rule, ERG_KNOB_POWER, file->power_w, 1000, yaml, key, err) ||
        take_bounds(rule, ERG_KNOB_MEMORY, NULL, 1, yaml, key, err))
        return -1;
    for (unsigned k = 0; k < file->may_count; k++)
        rule->may |= 1u << file->may[k];
    rule->of_job = strcmp(file->gpus, "job") == 0;
    if (rule->of_job)
        return 0;
    if (rule->who == ERG_WHO_JOB)
        return erg_yaml_fail(yaml, key, err, "a rule for jobs has \"gpus: job\"");
    return erg_gpu_bits(file->gpus, erg_gpus_count(gpus), gpus, &rule->gpus, &gpu) == 0
               ? 0
               : erg_yaml_fail(yaml, key, err, "gpus: %s", gpu.message);
}

/* ---- other settings ---- */

static int take_standing(struct erg_daemon_config *config, const struct standing_part *file,
                         const struct erg_yaml *yaml, struct erg_error *err)
{
    double value;
    if (!file->power_w || strcmp(file->power_w, "before") == 0) {
        config->standing_power = ERG_STANDING_BEFORE;
    } else if (strcmp(file->power_w, "default") == 0) {
        config->standing_power = ERG_STANDING_DEFAULT;
    } else if (erg_parse_double(file->power_w, &value) && value > 0 && value < 1e6) {
        config->standing_power = ERG_STANDING_VALUE;
        config->standing_mw = (int64_t)(value * 1000);
    } else {
        return erg_yaml_fail(yaml, "standing.power_w", err,
                             "expected \"before\", \"default\" or a number, got \"%s\"",
                             file->power_w);
    }
    if (!file->clock_mhz || strcmp(file->clock_mhz, "none") == 0)
        config->standing_mhz = 0;
    else if (erg_parse_double(file->clock_mhz, &value) && value > 0 && value < 1e5)
        config->standing_mhz = (int64_t)value;
    else
        return erg_yaml_fail(yaml, "standing.clock_mhz", err,
                             "expected \"none\" or a number, got \"%s\"", file->clock_mhz);
    config->persistence = file->persistence != 0;
    return 0;
}

/* A number with a default and bounds. */
static int take_number(double *value, double otherwise, const struct erg_yaml *yaml,
                       const char *key, double least, double most, struct erg_error *err)
{
    if (!erg_yaml_has(yaml, key))
        *value = otherwise;
    return erg_yaml_check_range(yaml, key, *value, least, most, err);
}

static int take(struct erg_daemon_config *config, struct config_file *file,
                const struct erg_gpus *gpus, const struct erg_yaml *yaml, struct erg_error *err)
{
    double period_ms = file->telemetry.period_ms, burst = file->rate.burst;
    config->rules = erg_xcalloc(file->rules_count, sizeof *config->rules);
    for (; config->rule_count < file->rules_count; config->rule_count++) {
        size_t i = config->rule_count;
        if (take_rule(&config->rules[i], &file->rules[i], i, gpus, yaml, err) != 0)
            return -1;
    }
    if (take_standing(config, &file->standing, yaml, err) ||
        take_number(&period_ms, 100, yaml, "telemetry.period_ms", 5, 60000, err) ||
        take_number(&file->lease.ttl_s, 30, yaml, "lease.ttl_s", 0.01, 86400, err) ||
        take_number(&file->lease.longest_h, 48, yaml, "lease.longest_h", 0.0001, 1e5, err) ||
        take_number(&file->rate.changes_per_s, 20, yaml, "rate.changes_per_s", 0.1, 1e6, err) ||
        take_number(&file->rate.node_changes_per_s, 100, yaml, "rate.node_changes_per_s", 0.1, 1e6,
                    err) ||
        take_number(&burst, 10, yaml, "rate.burst", 1, 1e6, err))
        return -1;
    config->members_only = file->telemetry.who != 0;
    config->period_ns = (int64_t)(period_ms * 1e6);
    config->ttl_ns = (int64_t)(file->lease.ttl_s * 1e9);
    config->longest_ns = (int64_t)(file->lease.longest_h * 3600e9);
    config->changes_per_s = file->rate.changes_per_s;
    config->node_changes_per_s = file->rate.node_changes_per_s;
    config->burst = (long)burst;
    config->audit = file->audit.file ? erg_xstrdup(file->audit.file) : NULL;
    config->audit_every = file->audit.detail != 0;
    return 0;
}

/* Reads the text and checks the owner through the same open file. */
static int read_safely(const char *path, char **text, size_t *length, struct erg_error *err)
{
    enum { MOST = 1 << 18 };
    struct stat info;
    char same[40];
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), result;
    if (file < 0 || fstat(file, &info) != 0 || !S_ISREG(info.st_mode))
        result =
            erg_fail(err, ERG_FAILED, "reading the rules '%s': expected a file of rules", path);
    else if ((info.st_uid != 0 && info.st_uid != geteuid()) || info.st_mode & (S_IWGRP | S_IWOTH))
        result =
            erg_fail(err, ERG_FAILED,
                     "reading the rules '%s': it belongs to user %lu and has mode %04o, expected "
                     "root's file, which neither group nor others may write to",
                     path, (unsigned long)info.st_uid, (unsigned)info.st_mode & 07777);
    else {
        snprintf(same, sizeof same, "/proc/self/fd/%d", file);
        result = erg_file_read(same, MOST, text, length, err);
        if (result != 0)
            erg_fail_context(err, "reading the rules '%s'", path);
    }
    if (file >= 0)
        close(file);
    return result;
}

int erg_daemon_config_load(struct erg_daemon_config *config, const char *path,
                           const struct erg_gpus *gpus, struct erg_error *err)
{
    char *text = NULL;
    size_t length = 0;
    struct erg_yaml *yaml;
    void *file = NULL;
    *config = (struct erg_daemon_config){0};
    int result = read_safely(path, &text, &length, err);
    if (result == 0)
        result = erg_yaml_open_text(&yaml, path, text, length, err);
    free(text);
    if (result != 0)
        return -1;
    result = erg_yaml_read(yaml, &config_schema, &file, err);
    if (result == 0)
        result = take(config, file, gpus, yaml, err);
    erg_yaml_free(&config_schema, file);
    erg_yaml_close(yaml);
    if (result != 0)
        erg_daemon_config_release(config);
    return result;
}

void erg_daemon_config_release(struct erg_daemon_config *config)
{
    free(config->rules);
    free(config->audit);
    *config = (struct erg_daemon_config){0};
}

/* ---- which rule applies ---- */

static bool is_in_group(const struct erg_daemon_peer *peer, gid_t group)
{
    for (size_t i = 0; i < peer->group_count; i++)
        if (peer->groups[i] == group)
            return true;
    return false;
}

/* The GPUs of the peer's job: those granted to that job and that user. */
static uint64_t gpus_of_job(const struct erg_daemon_grant *grants,
                            const struct erg_daemon_peer *peer)
{
    for (size_t i = 0; peer->job && i < ERG_DAEMON_GRANTS; i++)
        if (grants[i].job == peer->job && grants[i].uid == peer->uid)
            return grants[i].gpus;
    return 0;
}

const struct erg_daemon_rule *erg_daemon_rule_of(const struct erg_daemon_config *config,
                                                 const struct erg_daemon_grant *grants,
                                                 const struct erg_daemon_peer *peer, size_t gpu)
{
    uint64_t of_job = gpus_of_job(grants, peer);
    for (size_t i = 0; i < config->rule_count; i++) {
        const struct erg_daemon_rule *rule = &config->rules[i];
        bool who = rule->who == ERG_WHO_USER    ? rule->id == peer->uid
                   : rule->who == ERG_WHO_GROUP ? is_in_group(peer, rule->id)
                                                : of_job != 0;
        if (who && (rule->of_job ? of_job : rule->gpus) >> gpu & 1)
            return rule;
    }
    return NULL;
}
