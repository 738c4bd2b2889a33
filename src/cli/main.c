#include <stdio.h>

int main(void)
{
    puts("ergon " ERGON_VERSION);
    return 0;
}
