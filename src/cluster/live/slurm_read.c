/* Parses the output of Slurm's commands. */
#define _GNU_SOURCE /* memmem, timegm, strptime, strncasecmp */
#include "cluster/live/slurm_read.h"

#include "base/text.h"
#include "cluster/live/host_list.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A part of a text, without a terminating 0. */
struct slurm_span {
    const char *at, *end;
};

static size_t length_of(struct slurm_span span)
{
    return (size_t)(span.end - span.at);
}

/* The start of a word in a span, or NULL. */
static const char *find(struct slurm_span span, const char *word)
{
    return span.at < span.end ? memmem(span.at, length_of(span), word, strlen(word)) : NULL;
}

static bool begins(struct slurm_span span, const char *word)
{
    size_t length = strlen(word);
    return length_of(span) >= length && memcmp(span.at, word, length) == 0;
}

/* Parses a whole number without a sign and moves behind it; -1 if there is none. */
static long take_number(struct slurm_span *span)
{
    long value = -1;
    for (; span->at < span->end && isdigit((unsigned char)*span->at); span->at++) {
        if (value > INT32_MAX)
            return -1;
        value = (value < 0 ? 0 : 10 * value) + (*span->at - '0');
    }
    return value;
}

static const char *keep(struct slurm_span span, struct erg_arena *arena)
{
    char *copy = erg_arena_alloc(arena, length_of(span) + 1);
    memcpy(copy, span.at, length_of(span));
    for (char *at = copy; at < copy + length_of(span); at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            *at = ' ';
    erg_utf8_repair(copy, length_of(span) + 1);
    return copy;
}

/* ---- GPUs ---- */

/* "0-2,5", up to a parenthesis. */
static uint64_t read_bits(struct slurm_span span)
{
    uint64_t bits = 0;
    while (span.at < span.end) {
        long from = take_number(&span), to = from;
        if (span.at < span.end && *span.at == '-') {
            span.at++;
            to = take_number(&span);
        }
        if (from < 0 || to < from)
            break;
        for (long i = from; i <= to && i < ERG_NODE_GPUS_MOST; i++)
            bits |= UINT64_C(1) << i;
        if (span.at == span.end || *span.at != ',')
            break;
        span.at++;
    }
    return bits;
}

/* An entry without its parenthesis: "gpu", "gpu:4", "gpu:a40:4", "gres/gpu:a40=4". */
static bool read_entry(struct slurm_span entry, long *count, struct slurm_span *type)
{
    if (begins(entry, "gres/") || begins(entry, "gres:"))
        entry.at += 5;
    if (!begins(entry, "gpu"))
        return false;
    entry.at += 3;
    *count = 1;
    *type = (struct slurm_span){entry.at, entry.at};
    while (entry.at < entry.end) {
        if (*entry.at != ':' && *entry.at != '=')
            return false;
        struct slurm_span word = {entry.at + 1, entry.at + 1};
        while (word.end < entry.end && *word.end != ':' && *word.end != '=')
            word.end++;
        entry.at = word.end;
        struct slurm_span digits = word;
        long number = take_number(&digits);
        if (number >= 0 && digits.at == word.end)
            *count = number;
        else
            *type = word;
    }
    return true;
}

void erg_slurm_read_gres(struct erg_slurm_gres *gres, const char *text, size_t length)
{
    *gres = (struct erg_slurm_gres){.indexed = true};
    struct slurm_span rest = {text, text + length};
    while (rest.at < rest.end) {
        struct slurm_span entry = {rest.at, rest.at}, inner = {rest.at, rest.at}, type;
        while (entry.end < rest.end && *entry.end != ',' && *entry.end != '(')
            entry.end++;
        rest.at = entry.end;
        if (rest.at < rest.end && *rest.at == '(') {
            const char *close = memchr(rest.at, ')', length_of(rest));
            inner = (struct slurm_span){rest.at + 1, close ? close : rest.end};
            rest.at = close ? close + 1 : rest.end;
        }
        if (rest.at < rest.end)
            rest.at++; /* the comma */
        long count;
        if (!read_entry(entry, &count, &type) || count > ERG_NODE_GPUS_MOST)
            continue;
        uint64_t bits =
            begins(inner, "IDX:") ? read_bits((struct slurm_span){inner.at + 4, inner.end}) : 0;
        if (__builtin_popcountll(bits) != count)
            gres->indexed = false;
        gres->gpus |= bits;
        if (length_of(type) && length_of(type) < sizeof gres->type) {
            char name[sizeof gres->type] = "";
            memcpy(name, type.at, length_of(type));
            if (gres->type[0] && strcmp(gres->type, name) != 0)
                gres->mixed = true;
            else
                memcpy(gres->type, name, sizeof name);
        }
        gres->count += (int)count;
    }
    if (__builtin_popcountll(gres->gpus) != gres->count)
        gres->indexed = false;
}

/* ---- nodes by name ---- */

static int compare_names(const void *a, const void *b, void *names)
{
    const char *const *by_node = names;
    return strcmp(by_node[*(const int *)a], by_node[*(const int *)b]);
}

void erg_slurm_nodes_make(struct erg_slurm_nodes *nodes, const struct erg_fleet *fleet,
                          const char *const *names)
{
    *nodes = (struct erg_slurm_nodes){fleet, names, erg_xcalloc((size_t)fleet->nodes, sizeof(int))};
    for (int i = 0; i < fleet->nodes; i++)
        nodes->sorted[i] = i;
    qsort_r(nodes->sorted, (size_t)fleet->nodes, sizeof(int), compare_names,
            (void *)(uintptr_t)names);
}

void erg_slurm_nodes_release(struct erg_slurm_nodes *nodes)
{
    free(nodes->sorted);
    *nodes = (struct erg_slurm_nodes){0};
}

int erg_slurm_nodes_find(const struct erg_slurm_nodes *nodes, const char *name)
{
    int from = 0, to = nodes->fleet->nodes;
    while (from < to) {
        int middle = from + (to - from) / 2;
        int order = strcmp(name, nodes->names[nodes->sorted[middle]]);
        if (order == 0)
            return nodes->sorted[middle];
        if (order < 0)
            to = middle;
        else
            from = middle + 1;
    }
    return -1;
}

static int gpus_of(const struct erg_fleet *fleet, int node)
{
    for (unsigned i = 0; i < fleet->types_count; i++)
        if (node < fleet->types[i].first_node + fleet->types[i].nodes)
            return fleet->types[i].gpus_per_node;
    return 0;
}

/* ---- jobs ---- */

bool erg_slurm_next_job(const char **text, const char **record, size_t *length)
{
    const char *at = *text;
    while (strncmp(at, "JobId=", 6) != 0) {
        at = strchr(at, '\n');
        if (!at)
            return false;
        at++;
    }
    const char *end = strstr(at, "\nJobId=");
    if (!end)
        end = at + strlen(at);
    *record = at;
    *length = (size_t)(end - at);
    *text = *end ? end + 1 : end;
    return true;
}

/* The start of the fields that users cannot write: "UserId=NAME(1) GroupId=NAME(1) MCS_label=".
 * NULL: not in the span. */
static const char *find_fields(struct slurm_span span)
{
    for (const char *at; (at = find(span, " UserId=")) != NULL;) {
        struct slurm_span rest = {at + 8, span.end};
        const char *group = find(rest, " GroupId=");
        if (!group)
            return NULL;
        struct slurm_span user = {rest.at, group}, group_rest = {group + 9, span.end};
        const char *label = find(group_rest, " MCS_label=");
        bool good = user.at < user.end && user.end[-1] == ')' && label && label[-1] == ')';
        /* These must not occur within them. */
        struct slurm_span both = {user.at, label ? label : user.end};
        for (const char *c = both.at; good && c < both.end; c++)
            good = *c != '=' || (c >= group && c < group + 9);
        if (good)
            return at;
        span.at = at + 1;
    }
    return NULL;
}

/* The value of the field " KEY=" of a span, up to a blank; *count is its number of occurrences. */
static int field(struct slurm_span fields, const char *key, struct slurm_span *value)
{
    int times = 0;
    *value = (struct slurm_span){fields.at, fields.at};
    for (const char *at; (at = find(fields, key)) != NULL; times++) {
        fields.at = at + strlen(key);
        if (times == 0) {
            const char *end = memchr(fields.at, ' ', length_of(fields));
            *value = (struct slurm_span){fields.at, end ? end : fields.end};
        }
    }
    return times;
}

static bool is(struct slurm_span span, const char *word)
{
    return length_of(span) == strlen(word) && memcmp(span.at, word, length_of(span)) == 0;
}

enum erg_live_state erg_slurm_job_state(const char *text)
{
    static const struct {
        const char *text;
        enum erg_live_state state;
    } states[] = {
        {"PENDING", ERG_LIVE_PENDING},       {"SPECIAL_EXIT", ERG_LIVE_PENDING},
        {"REQUEUE_HOLD", ERG_LIVE_PENDING},  {"REQUEUED", ERG_LIVE_PENDING},
        {"RESV_DEL_HOLD", ERG_LIVE_PENDING}, {"RUNNING", ERG_LIVE_RUNNING},
        {"CONFIGURING", ERG_LIVE_RUNNING},   {"COMPLETING", ERG_LIVE_COMPLETING},
        {"COMPLETED", ERG_LIVE_COMPLETED},   {"FAILED", ERG_LIVE_FAILED},
        {"NODE_FAIL", ERG_LIVE_FAILED},      {"BOOT_FAIL", ERG_LIVE_FAILED},
        {"OUT_OF_MEMORY", ERG_LIVE_FAILED},  {"TIMEOUT", ERG_LIVE_FAILED},
        {"DEADLINE", ERG_LIVE_FAILED},       {"PREEMPTED", ERG_LIVE_FAILED},
        {"LAUNCH_FAILED", ERG_LIVE_FAILED},  {"CANCELLED", ERG_LIVE_CANCELLED},
    };
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (strcmp(text, states[i].text) == 0)
            return states[i].state;
    return ERG_LIVE_UNKNOWN;
}

/* "7:0", as in a shell. */
static int exit_of(struct slurm_span text)
{
    long status = take_number(&text), number = -1;
    if (text.at < text.end && *text.at == ':') {
        text.at++;
        number = take_number(&text);
    }
    return status < 0 || status > 255 || number < 0 || number > 127 ? -1
           : number > 0                                             ? 128 + (int)number
                                                                    : (int)status;
}

static double time_of(struct slurm_span text)
{
    char copy[32];
    struct tm at = {0};
    if (length_of(text) >= sizeof copy)
        return NAN;
    memcpy(copy, text.at, length_of(text));
    copy[length_of(text)] = '\0';
    const char *end = strptime(copy, "%Y-%m-%dT%H:%M:%S", &at);
    return end && !*end ? (double)timegm(&at) : NAN;
}

/* "ergon:1:" and 16 hexadecimal digits as the whole comment. */
static void read_token(char *token, struct slurm_span free_text)
{
    static const char mark[] = "ergon:1:";
    const char *at = find(free_text, " Comment=");
    if (!at)
        return;
    free_text.at = at + 9;
    if (!begins(free_text, mark))
        return;
    const char *from = free_text.at + sizeof mark - 1, *end = from;
    while (end < free_text.end && (isdigit((unsigned char)*end) || (*end >= 'a' && *end <= 'f')))
        end++;
    if (end - from != ERG_TOKEN_LENGTH || (end < free_text.end && *end != ' '))
        return;
    memcpy(token, from, ERG_TOKEN_LENGTH);
    token[ERG_TOKEN_LENGTH] = '\0';
}

static void add_slice(struct erg_placement *placement, int node, uint64_t gpus)
{
    for (int i = 0; i < placement->count; i++)
        if (placement->slices[i].node == node) {
            placement->slices[i].gpus |= gpus;
            return;
        }
    erg_placement_add(placement, node, gpus);
}

static uint64_t gpus_mask(int gpus)
{
    return gpus >= ERG_NODE_GPUS_MOST ? ~UINT64_C(0) : (UINT64_C(1) << gpus) - 1;
}

/* Gives these GPUs to each node of a list; or the number `count` if it is above 0. */
static size_t add_nodes(struct erg_placement *placement, const struct erg_slurm_nodes *nodes,
                        const char *list, uint64_t gpus, int count)
{
    struct erg_host_list hosts = {0};
    erg_host_list_add(&hosts, list, NULL);
    for (size_t i = 0; i < hosts.count; i++) {
        int node = erg_slurm_nodes_find(nodes, hosts.items[i]);
        if (node < 0)
            continue;
        int has = gpus_of(nodes->fleet, node);
        uint64_t all = gpus_mask(has);
        uint64_t bits = count > 0 ? erg_gpus_lowest(all, count < has ? count : has) : gpus & all;
        if (bits)
            add_slice(placement, node, bits);
    }
    size_t named = hosts.count;
    erg_host_list_release(&hosts);
    return named;
}

/* "Nodes=h[1-2] CPU_IDs=7 Mem=0 GRES=gpu:h100:3(IDX:0-2)", any number of times. */
static void read_placement(struct erg_slurm_job *read, const struct erg_slurm_nodes *nodes,
                           struct slurm_span fields, struct erg_arena *arena)
{
    struct slurm_span total, list;
    struct erg_slurm_gres all;
    bool shown = false;
    field(fields, " JOB_GRES=", &total);
    erg_slurm_read_gres(&all, total.at, length_of(total));
    if (field(fields, " NodeList=", &list) == 0)
        return;
    const char *node_list = keep(list, arena);
    for (const char *at; (at = find(fields, " Nodes=")) != NULL;) {
        fields.at = at + 1;
        const char *next = find(fields, " Nodes=");
        struct slurm_span group = {at, next ? next : fields.end}, gpus;
        if (field(group, " Nodes=", &list) == 0 || field(group, " GRES=", &gpus) == 0)
            continue;
        struct erg_slurm_gres gres;
        erg_slurm_read_gres(&gres, gpus.at, length_of(gpus));
        shown |= gres.count > 0;
        if (gres.count > 0) {
            read->which_unknown |= !gres.indexed;
            add_nodes(&read->job.placement, nodes, keep(list, arena), gres.gpus,
                      gres.indexed ? 0 : gres.count);
        }
    }
    if (shown || all.count == 0)
        return;
    /* For a completing job, Slurm prints only the sum over its nodes. */
    struct erg_placement none = {0};
    size_t named = add_nodes(&none, nodes, node_list, 0, 1);
    erg_placement_release(&none);
    read->which_unknown = true;
    if (named)
        add_nodes(&read->job.placement, nodes, node_list, 0,
                  (int)(((size_t)all.count + named - 1) / named));
}

/* The fields that Slurm writes, from UserId to Network. */
static bool read_fields(struct erg_slurm_job *read, const struct erg_slurm_nodes *nodes,
                        const char *partition, struct slurm_span fields, struct erg_arena *arena)
{
    struct erg_live_job *job = &read->job;
    struct slurm_span user, priority, state, reason, restarts, exits, submitted, started, in,
        account, value;
    if (field(fields, " UserId=", &user) != 1 || field(fields, " Priority=", &priority) != 1 ||
        field(fields, " JobState=", &state) != 1 || field(fields, " Reason=", &reason) != 1 ||
        field(fields, " Partition=", &in) != 1 || field(fields, " Restarts=", &restarts) > 1 ||
        field(fields, " ExitCode=", &exits) > 1 || field(fields, " SubmitTime=", &submitted) > 1 ||
        field(fields, " StartTime=", &started) > 1)
        return false;
    user = (struct slurm_span){user.at, find(fields, " GroupId=")};
    assert(user.end > user.at); /* find_fields() found both */
    const char *open = memrchr(user.at, '(', length_of(user));
    struct slurm_span number = {open ? open + 1 : user.end, user.end};
    long uid = -1;
    if (open && user.end[-1] == ')') { /* up to 2^32 - 2 */
        uid = 0;
        for (const char *at = number.at; at < number.end - 1; at++)
            uid = isdigit((unsigned char)*at) && uid >= 0 && uid <= UINT32_MAX
                      ? 10 * uid + (*at - '0')
                      : -1;
    }
    if (uid < 0 || uid >= UINT32_MAX)
        return false;
    job->uid = (uid_t)uid;
    job->user = keep((struct slurm_span){user.at, open}, arena);
    field(fields, " Account=", &account);
    job->account = is(account, "(null)") ? "" : keep(account, arena);
    job->in_partition = is(in, partition);
    job->state_text = keep(state, arena);
    job->state = erg_slurm_job_state(job->state_text);
    if (job->state == ERG_LIVE_PENDING && is(priority, "0"))
        job->state = ERG_LIVE_HELD;
    job->reason = keep(reason, arena);
    job->held_by_administrator = job->state == ERG_LIVE_HELD && is(reason, "JobHeldAdmin");
    read->is_started = is(state, "RUNNING");
    int status = length_of(exits) ? exit_of(exits) : -1;
    bool ended = job->state == ERG_LIVE_COMPLETED || job->state == ERG_LIVE_FAILED ||
                 job->state == ERG_LIVE_CANCELLED;
    job->exit_status = ended || status > 0 ? status : -1;
    long times = take_number(&restarts);
    job->restarts = times < 0 ? 0 : (int)times;
    job->submitted_unix_s = time_of(submitted);
    const double started_s = time_of(started); /* of a pending job: its planned start */
    job->started_unix_s = read->is_started && !isnan(started_s) ? started_s : 0;
    field(fields, " CPUs/Task=", &value);
    long cpus = take_number(&value);
    read->cpus_per_task = cpus > 0 && cpus < 100000 ? (int)cpus : 1;
    field(fields, " ReqNodeList=", &value);
    read->asked_nodes = is(value, "(null)") ? "" : keep(value, arena);
    /* Only after the state; before it, users can choose the text of an account. */
    if (job->state == ERG_LIVE_RUNNING || job->state == ERG_LIVE_COMPLETING ||
        job->state == ERG_LIVE_UNKNOWN)
        read_placement(read, nodes, (struct slurm_span){state.end, fields.end}, arena);
    return true;
}

bool erg_slurm_read_job(struct erg_slurm_job *read, const struct erg_slurm_nodes *nodes,
                        const char *partition, const char *record, size_t length,
                        struct erg_arena *arena)
{
    struct slurm_span all = {record, record + length};
    *read = (struct erg_slurm_job){.job = {.user = "",
                                           .account = "",
                                           .name = "",
                                           .state = ERG_LIVE_UNKNOWN,
                                           .state_text = "",
                                           .reason = "",
                                           .exit_status = -1,
                                           .submitted_unix_s = NAN},
                                   .doubtful = true,
                                   .cpus_per_task = 1,
                                   .asked_nodes = "",
                                   .asked_gpus = -1};
    if (!begins(all, "JobId="))
        return false;
    all.at += 6;
    long id = 0;
    const char *digits = all.at;
    for (; all.at < all.end && isdigit((unsigned char)*all.at) && id <= UINT32_MAX; all.at++)
        id = 10 * id + (*all.at - '0');
    if (all.at == digits || id == 0 || id > UINT32_MAX)
        return false;
    read->job.id = (uint32_t)id;
    read->job.reason = "its text in Slurm is ambiguous";

    const char *name = find(all, " JobName=");
    if (!name)
        return true;
    struct slurm_span head = {all.at, name}, rest = {name, all.end}, value;
    const char *begin = find_fields(rest);
    if (!begin || find_fields((struct slurm_span){begin + 1, all.end}))
        return true;
    const char *end = find((struct slurm_span){begin, all.end}, " Command=");
    if (!end)
        return true;
    struct slurm_span fields = {begin, end};
    if (!read_fields(read, nodes, partition, fields, arena)) {
        erg_placement_release(&read->job.placement);
        read->job.state = ERG_LIVE_UNKNOWN;
        return true;
    }
    read->doubtful = false;
    read->job.single = !find(head, " ArrayJobId=") && !find(head, " HetJobId=") &&
                       !find(head, " PackJobId=") && *all.at == ' ';
    const char *title = name + 9;
    const char *het = find((struct slurm_span){title, begin}, " HetJobIdSet=");
    read->job.name = keep((struct slurm_span){title, het ? het : begin}, arena);
    read_token(read->job.token, (struct slurm_span){end, all.end});
    /* The user can change the request, so it is only compared. */
    const char *asked = NULL;
    for (struct slurm_span tail = {end, all.end}; (tail.at = find(tail, " TresPerNode=")) != NULL;)
        asked = tail.at += 13;
    if (asked) {
        const char *stop = memchr(asked, ' ', (size_t)(all.end - asked));
        struct erg_slurm_gres gres;
        value = (struct slurm_span){asked, stop ? stop : all.end};
        erg_slurm_read_gres(&gres, value.at, length_of(value));
        read->asked_gpus = gres.count;
    }
    return true;
}

/* ---- nodes ---- */

enum erg_live_node_state erg_slurm_node_state(const char *text)
{
    static const struct {
        const char *flag;
        enum erg_live_node_state state;
    } flags[] = {
        /* the first match decides */
        {"DOWN", ERG_NODE_DOWN},
        {"ERROR", ERG_NODE_DOWN},
        {"INVAL", ERG_NODE_DOWN},
        {"FUTURE", ERG_NODE_DOWN},
        {"POWERING_UP", ERG_NODE_CHANGES},
        {"POWER_UP", ERG_NODE_CHANGES},
        {"POWERING_DOWN", ERG_NODE_CHANGES},
        {"POWERED_DOWN", ERG_NODE_OFF},
        {"POWER_DOWN", ERG_NODE_CHANGES},
        {"POWER", ERG_NODE_OFF}, /* before 21.08 */
        {"REBOOT_ISSUED", ERG_NODE_CHANGES},
        {"REBOOT_REQUESTED", ERG_NODE_DRAINS},
        {"UNKNOWN", ERG_NODE_UNKNOWN},
        {"NOT_RESPONDING", ERG_NODE_UNKNOWN},
        {"DRAIN", ERG_NODE_DRAINS},
        {"DRAINING", ERG_NODE_DRAINS},
        {"DRAINED", ERG_NODE_DRAINS},
        {"FAIL", ERG_NODE_DRAINS},
        {"INVALID_REG", ERG_NODE_DRAINS},
        {"MAINTENANCE", ERG_NODE_DRAINS},
        {"BLOCKED", ERG_NODE_DRAINS},
        {"IDLE", ERG_NODE_UP},
        {"MIXED", ERG_NODE_UP},
        {"ALLOCATED", ERG_NODE_UP},
    };
    /* "IDLE*": it does not respond. */
    if (strchr(text, '*') && strncmp(text, "DOWN", 4) != 0 && !strstr(text, "POWER"))
        return ERG_NODE_UNKNOWN;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        for (const char *at = text; *at;) {
            size_t length = strcspn(at, "+*#~%$@^!-");
            if (length == strlen(flags[i].flag) && strncmp(at, flags[i].flag, length) == 0)
                return flags[i].state;
            at += length;
            at += strspn(at, "+*#~%$@^!-");
        }
    return ERG_NODE_UNKNOWN;
}

bool erg_slurm_next_node(const char **text, struct erg_slurm_node *node,
                         const struct erg_slurm_nodes *nodes, struct erg_arena *arena)
{
    const char *at = *text;
    while (strncmp(at, "NodeName=", 9) != 0) {
        at = strchr(at, '\n');
        if (!at)
            return false;
        at++;
    }
    const char *end = strstr(at, "\nNodeName=");
    if (!end)
        end = at + strlen(at);
    *text = *end ? end + 1 : end;
    struct slurm_span line = {at + 9, end}, name = {line.at, line.at}, value;
    while (name.end < line.end && !isspace((unsigned char)*name.end))
        name.end++;
    const char *reason = find(line, " Reason=");
    struct slurm_span fields = {name.end, reason ? reason : line.end};
    *node = (struct erg_slurm_node){.name = keep(name, arena), .live = {ERG_NODE_UNKNOWN, ""}};
    node->node = erg_slurm_nodes_find(nodes, node->name);
    field(fields, " State=", &value);
    node->state_text = keep(value, arena);
    node->live.state = erg_slurm_node_state(node->state_text);
    field(fields, " Partitions=", &value);
    node->partitions = keep(value, arena);
    if (reason) {
        const char *stop = memchr(reason, '\n', (size_t)(line.end - reason));
        node->live.reason = keep((struct slurm_span){reason + 8, stop ? stop : line.end}, arena);
    }
    if (field(fields, " Gres=", &value))
        erg_slurm_read_gres(&node->has, value.at, length_of(value));
    if (field(fields, " GresUsed=", &value)) {
        erg_slurm_read_gres(&node->used, value.at, length_of(value));
        node->is_used_known = node->used.indexed;
    }
    return true;
}

/* ---- configuration ---- */

const char *erg_slurm_value(const char *text, const char *key, struct erg_arena *arena)
{
    size_t length = strlen(key);
    for (const char *at = text; (at = strstr(at, key)) != NULL; at += length) {
        if (at > text && at[-1] != ' ' && at[-1] != '\n')
            continue;
        const char *value = at + length;
        if (*value == '=') {
            value++;
            return keep((struct slurm_span){value, value + strcspn(value, " \n")}, arena);
        }
        size_t blanks = strspn(value, " \t");
        if (blanks && value[blanks] == '=') {
            value += blanks + 1;
            value += strspn(value, " \t");
            return keep((struct slurm_span){value, value + strcspn(value, "\n")}, arena);
        }
    }
    return NULL;
}

/* ---- nodes that stay on ---- */

/* Returns true if two lists share a word; `between`: the characters that separate words. */
static bool share_word(const char *a, const char *b, const char *between)
{
    for (size_t length; a += strspn(a, between), (length = strcspn(a, between)) > 0; a += length)
        for (const char *at = b; at += strspn(at, between), *at; at += strcspn(at, between))
            if (strcspn(at, between) == length && strncasecmp(a, at, length) == 0)
                return true;
    return false;
}

/* Returns true if a list names a node. In "h[1-9]:2,k1" Slurm chooses two of nine nodes: all nine
 * count as named. */
static bool lists_node(const char *list, const char *name)
{
    struct erg_host_list hosts = {0};
    struct erg_text names = {0};
    for (const char *at = list; *at; at++)
        if (*at == ':')
            at += strspn(at + 1, "0123456789");
        else
            erg_text_add_bytes(&names, at, 1);
    bool is = names.count && erg_host_list_add(&hosts, names.data, NULL) != 0; /* unclear: all */
    for (size_t i = 0; i < hosts.count; i++)
        is = is || strcmp(hosts.items[i], name) == 0;
    erg_host_list_release(&hosts);
    erg_text_release(&names);
    return is;
}

int erg_slurm_may_sleep(const struct erg_slurm_node *node, const char *config,
                        struct erg_error *err)
{
    struct erg_arena arena = {0};
    const char *values[4];
    static const char *const keys[] = {"SuspendProgram", "SuspendExcNodes", "SuspendExcParts",
                                       "SuspendExcStates"};
    int result = 0;
    for (int i = 0; i < 4; i++) {
        values[i] = erg_slurm_value(config, keys[i], &arena);
        if (!values[i] || strcmp(values[i], "(null)") == 0)
            values[i] = "";
    }
    if (!*values[0])
        result = erg_fail(err, ERG_FAILED, "slurm.conf has no SuspendProgram");
    else if (lists_node(values[1], node->name))
        result =
            erg_fail(err, ERG_FAILED, "it is among SuspendExcNodes=%s in slurm.conf", values[1]);
    else if (share_word(values[2], node->partitions, ", "))
        result = erg_fail(err, ERG_FAILED,
                          "it is in a partition of SuspendExcParts=%s in slurm.conf", values[2]);
    else if (share_word(values[3], node->state_text, ", +*#~%$@^!-"))
        result =
            erg_fail(err, ERG_FAILED, "its state %s is among SuspendExcStates=%s in slurm.conf",
                     node->state_text, values[3]);
    erg_arena_release(&arena);
    return result;
}
