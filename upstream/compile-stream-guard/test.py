    def test_compile_keeps_streams_apart(self):
        streams = [mx.new_stream(mx.default_device()) for _ in range(2)]
        x = mx.ones((4, 4))

        # What a function returns is never merged, hence the negation.
        def fun(x):
            return [mx.negative(mx.matmul(x, x, stream=s)) for s in streams]

        graph = StringIO()
        mx.export_to_dot(graph, *mx.compile(fun)(x))
        self.assertEqual(graph.getvalue().count('"Matmul"'), 2)
