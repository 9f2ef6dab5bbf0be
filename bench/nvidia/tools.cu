// Fills inputs on the device, and a kernel that only reads.

__device__ unsigned hash(unsigned long long x) {
  x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9ull;
  return unsigned(x >> 32);
}

extern "C" __global__ void
fill_words(unsigned* p, unsigned long long n, unsigned seed) {
  const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
  for (unsigned long long i =
           (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
       i < n;
       i += step) {
    p[i] = hash(i * 4294967291ull + seed);
  }
}

// bfloat16 values, uniform over [-bound, bound).
extern "C" __global__ void fill_bfloats(
    unsigned short* p,
    unsigned long long n,
    unsigned seed,
    float bound) {
  const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
  for (unsigned long long i =
           (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
       i < n;
       i += step) {
    const float unit =
        int(hash(i * 4294967291ull + seed)) * (1.0f / 2147483648.0f);
    p[i] = __float_as_uint(unit * bound) >> 16;
  }
}

// Bytes, uniform over [first, first + count), each with a random sign if `sign`
// is its bit.
extern "C" __global__ void fill_codes(
    unsigned char* p,
    unsigned long long n,
    unsigned seed,
    unsigned first,
    unsigned count,
    unsigned sign) {
  const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
  for (unsigned long long i =
           (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
       i < n;
       i += step) {
    const unsigned random = hash(i * 4294967291ull + seed);
    p[i] = (first + (random >> 8) % count) | (random & sign);
  }
}

extern "C" __global__ void
read_all(const uint4* p, unsigned long long n, unsigned* out) {
  const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
  unsigned sum = 0;
#pragma unroll 8
  for (unsigned long long i =
           (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
       i < n;
       i += step) {
    const uint4 v = p[i];
    sum += v.x ^ v.y ^ v.z ^ v.w;
  }
  if (sum == 0x9e3779b9) { // never true, but the compiler cannot know that
    *out = sum;
  }
}
