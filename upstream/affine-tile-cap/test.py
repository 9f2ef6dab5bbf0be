    @unittest.skipIf(not mx.metal.is_available(), "requires Metal")
    def test_qmv_wide_rows_do_not_depend_on_tiles(self):
        # Five rows fit in one tile whatever the cap, and K, N <= 4096 keeps
        # every M here on the mat-vec path.
        k1, k2 = mx.random.split(mx.random.key(0))
        for dtype, group_size, bits, M, (B, N) in product(
            [mx.float32, mx.bfloat16],
            [32, 64, 128],
            [2, 3, 4, 5, 6, 8],
            [6, 7, 8],
            [(1, 2056), (3, 67)],
        ):
            with self.subTest(
                dtype=dtype, group_size=group_size, bits=bits, M=M, N=N, B=B
            ):
                x = mx.random.normal(shape=(B, M, 512), key=k1).astype(dtype)
                w = mx.random.normal(shape=(B, N, 512), key=k2).astype(dtype)
                w_q = mx.quantize(w, group_size, bits)
                y, head, tail = [
                    mx.quantized_matmul(rows, *w_q, True, group_size, bits)
                    for rows in (x, x[:, :5], x[:, 5:])
                ]
                self.assertTrue(mx.array_equal(y[:, :5], head))
                if M - 5 >= 2:
                    self.assertTrue(mx.array_equal(y[:, 5:], tail))
