/* The loops of jansson as cppcheck reads them (scripts/gates.sh); nothing is built with this file. */
#define json_array_foreach(array, index, value)                                                    \
    for ((index) = 0; ((value) = json_array_get(array, index)) != 0; (index)++)
#define json_object_foreach(object, key, value)                                                    \
    for ((key) = ""; ((value) = json_object_get(object, key)) != 0;)
#define json_object_foreach_safe(object, next, key, value)                                         \
    for ((key) = "", (next) = 0; ((value) = json_object_get(object, key)) != 0;)
