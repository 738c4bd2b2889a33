/* Software stacks as data. */
#include "hardware/hardware_internal.h"

#include "base/random.h"

static const cyaml_schema_field_t fields[] = {
    CYAML_FIELD_STRING_PTR("name", CYAML_FLAG_POINTER, struct erg_stack, name, 1, 200),
    CYAML_FIELD_FLOAT("join_grid_us", CYAML_FLAG_DEFAULT, struct erg_stack, join_grid_s),
    CYAML_FIELD_FLOAT("join_library_us", CYAML_FLAG_DEFAULT, struct erg_stack, join_library_s),
    CYAML_FIELD_FLOAT("host_per_kernel_us", CYAML_FLAG_DEFAULT, struct erg_stack,
                      host_per_kernel_s),
    CYAML_FIELD_FLOAT("library_link_factor", CYAML_FLAG_OPTIONAL, struct erg_stack,
                      library_link_factor),
    CYAML_FIELD_FLOAT("library_sm_share", CYAML_FLAG_OPTIONAL, struct erg_stack, library_sm_share),
    CYAML_FIELD_INT("library_blocks", CYAML_FLAG_OPTIONAL, struct erg_stack, library_blocks),
    CYAML_FIELD_FLOAT("kv_exchange_factor", CYAML_FLAG_DEFAULT, struct erg_stack,
                      kv_exchange_factor),
    CYAML_FIELD_FLOAT("overhead", CYAML_FLAG_DEFAULT, struct erg_stack, overhead),
    CYAML_FIELD_BOOL("fused_kernels", CYAML_FLAG_OPTIONAL, struct erg_stack, fused_kernels),
    CYAML_FIELD_BOOL("leaves_sms", CYAML_FLAG_OPTIONAL, struct erg_stack, leaves_sms),
    CYAML_FIELD_INT("tuned_beside_sms", CYAML_FLAG_OPTIONAL, struct erg_stack, tuned_beside_sms),
    CYAML_FIELD_END,
};

static const cyaml_schema_value_t schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct erg_stack, fields),
};

static const struct erg_quantity quantities[] = {
    {"join_grid_us", offsetof(struct erg_stack, join_grid_s), 1e-6, 0, 1e6},
    {"join_library_us", offsetof(struct erg_stack, join_library_s), 1e-6, 0, 1e6},
    {"host_per_kernel_us", offsetof(struct erg_stack, host_per_kernel_s), 1e-6, 0, 1e6},
    {"library_link_factor", offsetof(struct erg_stack, library_link_factor), 1, 0.001, 1},
    {"library_sm_share", offsetof(struct erg_stack, library_sm_share), 1, 0.001, 100},
    {"kv_exchange_factor", offsetof(struct erg_stack, kv_exchange_factor), 1, 0.01, 100},
    {"overhead", offsetof(struct erg_stack, overhead), 1, 0, 10},
};

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
    return erg_quantities_finish(stack, quantities, sizeof quantities / sizeof *quantities, yaml,
                                 "", err);
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
    return erg_quantities_hash(stack, quantities, sizeof quantities / sizeof *quantities, hash);
}
