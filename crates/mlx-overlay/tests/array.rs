//! Arrays: values survive a round trip, and invalid arguments are rejected.

#![allow(clippy::unwrap_used)] // in helpers too

use mlx_overlay::{
    Array, Device, Dtype, Element, Error, Stream, bf16, eval, f16, matmul, transpose,
};

fn goes_in_and_out<T: Element + PartialEq>(elements: &[T], dtype: Dtype) {
    let array = Array::from_slice(elements, &[2, elements.len() / 2]).unwrap();
    assert_eq!(array.shape(), [2, elements.len() / 2]);
    assert_eq!(array.len(), elements.len());
    assert_eq!(array.dtype(), dtype);
    assert_eq!(array.to_vec::<T>().unwrap(), elements);
    let evaluated = array.evaluate().unwrap();
    assert_eq!(evaluated.as_slice::<T>().unwrap(), elements);
    assert_eq!(
        evaluated.to_array().unwrap().to_vec::<T>().unwrap(),
        elements
    );
}

#[test]
fn every_element_type_goes_in_and_out() {
    let values = [0.0f32, -1.5, 3.25, f32::INFINITY, f32::MIN_POSITIVE, -0.0];
    goes_in_and_out(&values, Dtype::F32);
    goes_in_and_out(&values.map(f16::from_f32), Dtype::F16);
    goes_in_and_out(&values.map(bf16::from_f32), Dtype::Bf16);
    goes_in_and_out(&[0, 1, u32::MAX, 0x8000_0000], Dtype::U32);
}

#[test]
fn scalars_and_arrays_without_elements_exist() {
    let scalar = Array::from_slice(&[2.0f32], &[]).unwrap();
    assert_eq!((scalar.shape(), scalar.len()), (&[][..], 1));
    assert_eq!(scalar.to_vec::<f32>().unwrap(), [2.0]);
    let none = Array::from_slice::<u32>(&[], &[3, 0]).unwrap();
    assert_eq!(none.to_vec::<u32>().unwrap(), []);
}

#[test]
fn lengths_are_checked_before_the_bridge() {
    for shape in [
        &[3][..],
        &[2, 2],
        &[],
        &[1 << 40],
        &[usize::MAX, 2],
        &[usize::MAX, usize::MAX],
    ] {
        let error = Array::from_slice(&[1.0f32, 2.0], shape).unwrap_err();
        assert_eq!(
            error,
            Error::Length {
                elements: 2,
                shape: shape.to_vec()
            }
        );
    }
    let error = Array::from_slice::<f32>(&[], &[1 << 31, 0]).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
}

#[test]
fn a_type_is_not_taken_for_another() {
    let array = Array::from_slice(&[1.0f32], &[1]).unwrap();
    let error = array.to_vec::<u32>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "the array has elements of type f32, expected u32"
    );
    assert!(array.evaluate().unwrap().as_slice::<f16>().is_err());
}

#[test]
fn what_lies_transposed_comes_out_in_order() {
    let array = Array::from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]).unwrap();
    let transposed = transpose(&array).unwrap();
    assert_eq!(transposed.shape(), [3, 2]);
    assert_eq!(
        transposed.to_vec::<f32>().unwrap(),
        [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]
    );
}

#[test]
fn products_are_products() {
    let a = Array::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2]).unwrap();
    let b = Array::from_slice(&[1.0f32, 0.0, 0.0, -1.0], &[2, 2]).unwrap();
    let product = matmul(&a, &b).unwrap();
    let square = matmul(&product, &product).unwrap();
    eval([&product, &square]).unwrap();
    assert_eq!(product.to_vec::<f32>().unwrap(), [1.0, -2.0, 3.0, -4.0]);
    assert_eq!(square.to_vec::<f32>().unwrap(), [-5.0, 6.0, -9.0, 10.0]);
}

#[test]
fn what_mlx_throws_arrives_with_its_text() {
    let a = Array::from_slice(&[0.0f32; 6], &[2, 3]).unwrap();
    let Error::Mlx(text) = matmul(&a, &a).unwrap_err() else {
        panic!("not an error of MLX")
    };
    assert!(
        text.starts_with("[matmul] Last dimension of first input with shape (2,3)"),
        "{text}"
    );
}

#[test]
fn what_mlx_cannot_multiply_is_refused() {
    let full = Array::from_slice(&[0.0f32; 4], &[2, 2]).unwrap();
    let none = Array::from_slice::<f32>(&[], &[0, 2]).unwrap();
    assert_eq!(
        matmul(&none, &full).unwrap_err(),
        Error::Empty {
            argument: "a",
            shape: vec![0, 2]
        }
    );
    let integers = Array::from_slice(&[0u32; 4], &[2, 2]).unwrap();
    assert!(matches!(
        matmul(&full, &integers).unwrap_err(),
        Error::Dtype { argument: "b", .. }
    ));
}

#[test]
fn a_product_that_memory_cannot_hold_is_refused() {
    let column = Array::from_slice(&vec![0.0f32; 1 << 22], &[1 << 22, 1]).unwrap();
    let row = Array::from_slice(&vec![0.0f32; 1 << 22], &[1, 1 << 22]).unwrap();
    let error = matmul(&column, &row).unwrap_err().to_string();
    assert!(error.contains("more than MLX's memory limit"), "{error}");
}

#[test]
fn debug_does_not_evaluate() {
    let array = Array::from_slice(&[0.0f32; 6], &[2, 3]).unwrap();
    assert_eq!(format!("{array:?}"), "Array(f32, [2, 3])");
    assert_eq!(
        format!("{:?}", array.evaluate().unwrap()),
        "Evaluated(f32, [2, 3])"
    );
}

#[test]
fn a_scope_is_over_when_it_is_left() {
    let before = Stream::current().unwrap().index();
    let stream = Stream::new(Device::Cpu).unwrap();
    let default_before = Stream::default_of(Device::Cpu).unwrap().index();
    assert_ne!(stream.index(), before);

    let seen = stream.scope(|| {
        let inner = Stream::new(Device::Cpu)?;
        let inside = inner.scope(|| Ok::<_, Error>(Stream::current()?.index()))?;
        assert_eq!(inside, inner.index());
        assert_eq!(Stream::default_of(Device::Cpu)?.index(), stream.index());
        Ok::<_, Error>(Stream::current()?.index())
    });
    assert_eq!(seen.unwrap(), stream.index());

    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        stream.scope(|| -> Result<(), Error> { panic!("inside") })
    }));
    assert!(panics.is_err());
    assert_eq!(Stream::current().unwrap().index(), before);
    assert_eq!(
        Stream::default_of(Device::Cpu).unwrap().index(),
        default_before
    );
}

#[test]
fn streams_can_be_mixed() {
    let a = Array::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2]).unwrap();
    let other = Stream::new(Device::Cpu).unwrap();
    let there = other.scope(|| matmul(&a, &a)).unwrap();
    let here = matmul(&there, &a).unwrap();
    assert_eq!(here.to_vec::<f32>().unwrap(), [37.0, 54.0, 81.0, 118.0]);
    other.synchronize().unwrap();
}
