/* Training whose steps' kernels are recorded, on a fake of CUPTI. */
int main(void)
{
    return 0;
}
