/* Software stacks as data. */
#include "hardware/catalogue.h"

#include "base/random.h"

/* One line per number, as in engine.c: presence in the file, key, member, factor, limits. */
#define NUMBERS(X)                                                                                 \
    X(DEFAULT, join_grid_us, join_grid_s, 1e-6, 0, 1e6)                                            \
    X(DEFAULT, join_library_us, join_library_s, 1e-6, 0, 1e6)                                      \
    X(DEFAULT, host_per_kernel_us, host_per_kernel_s, 1e-6, 0, 1e6)                                \
    X(OPTIONAL, library_link_factor, library_link_factor, 1, 0.001, 1)                             \
    X(OPTIONAL, library_sm_share, library_sm_share, 1, 0.001, 100)                                 \
    X(DEFAULT, kv_exchange_factor, kv_exchange_factor, 1, 0.01, 100)                               \
    X(DEFAULT, overhead, overhead, 1, 0, 10)
#define FIELD(presence, key, member, factor, min, max)                                             \
    CYAML_FIELD_FLOAT(#key, CYAML_FLAG_##presence, struct erg_stack, member),
#define QUANTITY(presence, key, member, factor, min, max)                                          \
    {#key, offsetof(struct erg_stack, member), factor, min, max},

static const cyaml_schema_field_t fields[] = {
    CYAML_FIELD_STRING_PTR("name", CYAML_FLAG_POINTER, struct erg_stack, name, 1, 200),
    NUMBERS(FIELD)
        CYAML_FIELD_INT("library_blocks", CYAML_FLAG_OPTIONAL, struct erg_stack, library_blocks),
    CYAML_FIELD_BOOL("fused_kernels", CYAML_FLAG_OPTIONAL, struct erg_stack, fused_kernels),
    CYAML_FIELD_BOOL("leaves_sms", CYAML_FLAG_OPTIONAL, struct erg_stack, leaves_sms),
    CYAML_FIELD_INT("tuned_beside_sms", CYAML_FLAG_OPTIONAL, struct erg_stack, tuned_beside_sms),
    CYAML_FIELD_END,
};

static const cyaml_schema_value_t schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct erg_stack, fields),
};

static const struct erg_quantity quantities[] = {NUMBERS(QUANTITY){NULL, 0, 0, 0, 0}};

static int finish(void *value, const struct erg_yaml *yaml, struct erg_error *err)
{
    struct erg_stack *stack = value;
    erg_name_make_printable(&stack->name);
    if (erg_yaml_has(yaml, "library_blocks") &&
        erg_yaml_check_range(yaml, "library_blocks", stack->library_blocks, 1, 1024, err) != 0)
        return -1;
    if (erg_yaml_has(yaml, "tuned_beside_sms") &&
        erg_yaml_check_range(yaml, "tuned_beside_sms", stack->tuned_beside_sms, 1, 1024, err) != 0)
        return -1;
    return erg_quantities_finish(stack, quantities, yaml, "", err);
}

static const struct erg_catalogue catalogue = {"stacks", "software stack", &schema, finish};

int erg_stack_load(struct erg_stack **stack, const char *name, struct erg_error *err)
{
    void *value;
    if (erg_catalogue_load(&value, &catalogue, name, err) != 0)
        return -1;
    *stack = value;
    return 0;
}

void erg_stack_free(struct erg_stack *stack)
{
    erg_yaml_free(&schema, stack);
}

uint64_t erg_stack_fingerprint(const struct erg_stack *stack)
{
    uint64_t integers = (uint64_t)stack->library_blocks << 2 | (uint64_t)stack->fused_kernels << 1 |
                        (uint64_t)stack->leaves_sms;
    uint64_t hash = erg_hash_u64(erg_hash_text(stack->name), integers);
    hash = erg_hash_u64(hash, (uint64_t)stack->tuned_beside_sms);
    return erg_quantities_hash(stack, quantities, hash);
}
